"""Dataflow jobs, built offline: dry run, template, what is shipped to the workers; the built job runs as it stands."""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import fn_runner

from datamix.cli import main
from pipelines.beam import run
from pipelines.beam.shipping import build_package

CLOUD = ["--runner=DataflowRunner", "--project=my-proj", "--region=us-central1", "--no_auth"]
JOB = ["--job_name=corpus", "--labels=team=corpus", "--machine_type=n1-standard-4", "--num_workers=3"]
RECIPE = """
name: tiny
seed: 1
sources: [{name: mine, kind: jsonl, path: INPUT}]
mixture: {method: proportional, budget_tokens: 1000}
tokenizer: {train: {vocab_size: 300}}
curriculum: {}
model: {hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 1, intermediate_size: 16}
"""


pytestmark = pytest.mark.usefixtures("offline")


def described(job: dict[str, Any], proto: Any, tree: Any) -> str:
    """What a person would look at of a job, without times, hashes and places of this machine."""
    environment = job.get("environment", {})
    pools = [
        {
            "kind": pool.get("kind"),
            "machineType": pool.get("machineType"),
            "numWorkers": pool.get("numWorkers"),
            "diskSizeGb": pool.get("diskSizeGb"),
            "autoscaling": pool.get("autoscalingSettings"),
            "image": pool["workerHarnessContainerImage"].rpartition(":")[0],
            "packages": sorted(package["name"] for package in pool["packages"]),
        }
        for pool in environment.get("workerPools", [])
    ]
    containers = sorted(
        beam_runner_api_pb2.DockerPayload.FromString(e.payload).container_image.rpartition(":")[0]
        for e in proto.components.environments.values()
    )
    options = environment.get("sdkPipelineOptions", {}).get("options", {})
    wanted = ("project", "region", "job_name", "labels", "machine_type", "num_workers", "max_num_workers")
    content = {
        "name": job["name"],
        "type": job["type"],
        "labels": job["labels"],
        "serviceOptions": environment.get("serviceOptions"),
        "workerPools": pools,
        "options": {name: options[name] for name in wanted if name in options},
        "environments": containers,
        "transforms": tree(proto),
    }
    here = f"beam_python{sys.version_info.major}.{sys.version_info.minor}_sdk"
    return json.dumps(content, indent=1, sort_keys=True).replace(here, "beam_python3_sdk") + "\n"


def test_dry_run_builds_the_job_on_record(tree: Any, golden: Any) -> None:
    paths = ["--input=gs://my-bucket/in/*.jsonl.gz", "--kind=jsonl", "--output=gs://my-bucket/out"]
    settings = ["--model=gs://my-bucket/m.bin", "--benchmark=gs://my-bucket/b.jsonl", "--pii=email"]
    result = run([*paths, *settings, *CLOUD, *JOB, "--temp_location=gs://my-bucket/tmp", "--dry_run=True"])
    proto = result.job.proto_pipeline  # type: ignore[attr-defined]
    found = described(json.loads(result.job.json()), proto, tree)  # type: ignore[attr-defined]
    assert found == golden("dry_run.json", found)
    (environment,) = proto.components.environments.values()
    assert environment.urn == "beam:env:docker:v1"
    staged = [dependency.role_payload for dependency in environment.dependencies]
    assert any(b"workflow.tar.gz" in name for name in staged)
    specs = [transform.spec.urn for transform in proto.components.transforms.values()]
    assert specs.count("beam:transform:group_by_key:v1") == 5, "files, summaries, decisions, runs, bad records"


def test_template_is_the_job_on_record_and_its_pipeline_runs_as_it_stands(
    tmp_path: Path, tree: Any, golden: Any
) -> None:
    data = tmp_path / "in.jsonl"
    texts = ["The people of the town went to the river and saw it.", "A proof by induction begins with its first case."]
    rows = [{"id": n, "text": texts[n % 2]} for n in range(4)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    staging = tmp_path / "staging"
    staging.mkdir()
    template = staging / "job.json"
    paths = [f"--input={data}", f"--output={tmp_path / 'out'}", f"--spool={tmp_path / 'spool'}"]
    places = [f"--temp_location={staging}", f"--staging_location={staging}", f"--template_location={template}"]
    unchecked = "--dataflow_endpoint=http://localhost:1"  # an endpoint on localhost: nothing is looked up
    run([*paths, "--partitions=2", "--rules=none", *CLOUD, *JOB, *places, unchecked])
    proto = beam_runner_api_pb2.Pipeline.FromString((staging / "pipeline.pb").read_bytes())
    found = described(json.loads(template.read_text(encoding="utf-8")), proto, tree)
    assert found == golden("template.json", found)
    assert not (tmp_path / "out").exists(), "a template is not run"
    with tarfile.open(staging / "workflow.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"schemas/document.py", "filters/text/pii.py", "pipelines/beam/twopass.py", "setup.py"} <= names
    for environment in proto.components.environments.values():
        environment.urn, environment.payload = python_urns.EMBEDDED_PYTHON, b""
        del environment.dependencies[:]
    fn_runner.FnApiRunner().run_via_runner_api(proto, PipelineOptions([]))
    assert pq.read_table(tmp_path / "out/kept").num_rows == 2
    assert pq.read_table(tmp_path / "out/dropped").column("verdict").to_pylist() == ["duplicate:exact"] * 2
    assert (tmp_path / "out/set_aside.jsonl").read_bytes() == b""


def test_run_command_hands_unknown_flags_to_the_runner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "some words of text"}\n', encoding="utf-8")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.replace("INPUT", str(tmp_path / "a.jsonl")), encoding="utf-8")
    flags = [*CLOUD, "--temp_location=gs://my-bucket/tmp", "--dry_run=True"]
    with pytest.raises(SystemExit) as ended:
        main(["run", str(recipe), "--out", str(tmp_path / "run"), "--engine", "beam", "--", *flags])
    assert ended.value.code == 0
    assert "read: the job of 1 tasks is built and not run, as the options say" in capsys.readouterr().err


def test_package_for_the_workers_holds_all_code_and_pins_what_it_needs(tmp_path: Path) -> None:
    setup = build_package(tmp_path)
    text = setup.read_text(encoding="utf-8")
    assert (tmp_path / "pipelines/beam/transforms.py").is_file()
    assert (tmp_path / "filters/text/dedup/kernel.py").is_file()
    assert "pyarrow==" in text and "fasttext-community==" in text
    assert not list(tmp_path.rglob("__pycache__"))
