"""What the tests of distant runs need: a Dataflow service and a bucket of this machine, without credentials."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

BUCKET = "my-bucket"
GOLDEN = Path(__file__).parent / "golden"
_BYTES = "application/octet-stream"


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No metadata server is asked, no credentials are looked for."""
    pytest.importorskip("apitools", reason="needs the extra gcp: pip install 'datamix[gcp]'")
    from apache_beam.internal.gcp import auth

    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setattr(auth._Credentials, "_credentials_init", True)


class DataflowService:
    """The REST service of Dataflow as far as its client needs it: jobs are checked as it does, and run here.

    A job's pipeline is loaded from where the client staged it, its hash is compared, and it is run by FnApiRunner in
    a thread, with the worker environments replaced by this process. `jobs` are the requests received.
    """

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []
        self._states: list[str] = []
        self._server = ThreadingHTTPServer(("localhost", 0), self._handler())
        self.endpoint = f"http://localhost:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()

    def _submit(self, job: dict[str, Any]) -> dict[str, Any]:
        self.jobs.append(job)
        self._states.append("JOB_STATE_PENDING")
        number = len(self.jobs) - 1
        options = job["environment"]["sdkPipelineOptions"]["options"]
        with FileSystems.open(options["pipelineUrl"]) as source:
            content = source.read()
        if hashlib.sha256(content).hexdigest() != options["pipelineProtoHash"]:
            self._states[number] = "JOB_STATE_FAILED"
        else:
            threading.Thread(target=self._run, args=(number, content), daemon=True).start()
        return self._described(number)

    def _run(self, number: int, content: bytes) -> None:
        proto = beam_runner_api_pb2.Pipeline.FromString(content)
        for environment in proto.components.environments.values():
            environment.urn, environment.payload = python_urns.EMBEDDED_PYTHON, b""
            del environment.dependencies[:]
        self._states[number] = "JOB_STATE_RUNNING"
        try:
            FnApiRunner().run_via_runner_api(proto, PipelineOptions([])).wait_until_finish()
        except BaseException:
            self._states[number] = "JOB_STATE_FAILED"
            raise
        self._states[number] = "JOB_STATE_DONE"

    def _described(self, number: int) -> dict[str, Any]:
        job = self.jobs[number]
        state = {"currentState": self._states[number], "currentStateTime": "2026-01-01T00:00:00Z"}
        place = {"projectId": "my-proj", "location": "us-central1"}
        return {"id": f"job-{number}", "name": job["name"], "type": job["type"], **place, **state}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                self._answer(service._submit(json.loads(self.rfile.read(size))))

            def do_GET(self) -> None:
                path = self.path.partition("?")[0].rstrip("/")
                number = int(path.partition("/jobs/job-")[2].partition("/")[0])
                if path.endswith("/messages"):
                    self._answer({"jobMessages": []})
                elif path.endswith("/metrics"):
                    self._answer({"metrics": []})
                else:
                    self._answer(service._described(number))

            def _answer(self, content: dict[str, Any]) -> None:
                body = json.dumps(content).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


@pytest.fixture
def dataflow(offline: None) -> Iterator[DataflowService]:
    """A Dataflow service that runs jobs on this machine."""
    service = DataflowService()
    yield service
    service.close()


@pytest.fixture
def bucket(offline: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """gs:// of an emulated Google Cloud Storage that holds one empty bucket; gives its root."""
    server_module = pytest.importorskip(
        "gcp_storage_emulator.server", reason="needs the emulator of buckets: pip install gcp-storage-emulator"
    )
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://localhost:{port}")
    server = server_module.create_server("localhost", port, in_memory=True, default_bucket=BUCKET)
    server.start()
    yield f"gs://{BUCKET}"
    server.stop()


def put(source: Path, target: str) -> None:
    """Copy a local file to a bucket."""
    with FileSystems.create(target, _BYTES, CompressionTypes.UNCOMPRESSED) as sink:
        sink.write(source.read_bytes())


def get(source: str) -> bytes:
    """The bytes of a file of a bucket."""
    with FileSystems.open(source, _BYTES, CompressionTypes.UNCOMPRESSED) as file:
        return bytes(file.read())


@pytest.fixture
def files() -> Any:
    """`put` and `get`, as attributes."""

    class Files:
        put = staticmethod(put)
        get = staticmethod(get)

    return Files


def _tree(proto: Any) -> list[str]:
    """Transforms of ours by name, sorted, those of Beam's own composites left out."""
    names = {t.unique_name for t in proto.components.transforms.values() if t.unique_name}
    composites = {name for name in names if name.rpartition("/")[2] in ("Spread", "Path", "File", "Files", "EveryPart")}
    return sorted(n for n in names if not any(n.startswith(f"{c}/") for c in composites) and not n.startswith("ref_"))


def _golden(name: str, content: str) -> str:
    """The file of that name; written first when DATAMIX_UPDATE_GOLDEN is set."""
    path = GOLDEN / name
    if os.environ.get("DATAMIX_UPDATE_GOLDEN"):
        path.write_text(content, encoding="utf-8")
    return path.read_text(encoding="utf-8")


@pytest.fixture
def tree() -> Any:
    """`tree(proto)`: names of our transforms."""
    return _tree


@pytest.fixture
def golden() -> Any:
    """`golden(name, content)`: what is on record."""
    return _golden
