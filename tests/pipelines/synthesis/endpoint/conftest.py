"""A real HTTP server on this machine that answers chat completions as a test tells it to, also badly."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

Body = dict[str, Any]


@dataclass
class Answer:
    """What the server does. `cut` bytes of the body are sent before the connection closes; `hang_s` comes first;
    `endless` sends spaces until the client goes away."""

    body: bytes = b"{}"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    hang_s: float = 0.0
    endless: bool = False


def completion(content: str | None = "", finish: str | None = "stop", **message: Any) -> Answer:
    """A chat completion with 100 prompt tokens and 10 written ones."""
    made = {
        "id": "x",
        "object": "chat.completion",
        "choices": [
            {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content, **message}}
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }
    return Answer(json.dumps(made).encode())


def native_call(name: str, arguments: str) -> Body:
    """A structured call as a server gives it."""
    return {"id": "abc", "type": "function", "function": {"name": name, "arguments": arguments}}


class FakeEndpoint:
    """A server under test control. `seen` are the request bodies in the order of arrival, `keys` their bearer keys."""

    def __init__(self, script: Callable[[int, Body], Answer]) -> None:
        self.script = script
        self.seen: list[Body] = []
        self.keys: list[str] = []
        self.active = self.most_active = 0
        self.lock = threading.Lock()
        self.released = threading.Event()

        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                endpoint.serve(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            request_queue_size = 64

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Clients that go away are what these tests are about."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self.lock:
            number = len(self.seen)
            self.seen.append(body)
            self.keys.append(handler.headers.get("Authorization", ""))
            self.active += 1
            self.most_active = max(self.most_active, self.active)
        try:
            self.send(handler, self.script(number, body))
        except (BrokenPipeError, ConnectionResetError):
            handler.close_connection = True
        finally:
            with self.lock:
                self.active -= 1

    def send(self, handler: BaseHTTPRequestHandler, answer: Answer) -> None:
        if answer.hang_s:
            self.released.wait(answer.hang_s)
        handler.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", **answer.headers}.items():
            handler.send_header(name, value)
        if answer.endless:
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            block = b"10000\r\n" + b" " * 65536 + b"\r\n"
            while not self.released.is_set():
                handler.wfile.write(block)
            return
        handler.send_header("Content-Length", str(len(answer.body)))
        handler.end_headers()
        handler.wfile.write(answer.body if answer.cut is None else answer.body[: answer.cut])
        handler.close_connection = answer.cut is not None

    def close(self) -> None:
        self.released.set()
        self.server.shutdown()
        self.server.server_close()


@dataclass
class Kit:
    """What the tests of this folder use."""

    serve: Callable[[Callable[[int, Body], Answer]], FakeEndpoint]
    completion: Callable[..., Answer] = completion
    native_call: Callable[[str, str], Body] = native_call
    answer: type[Answer] = Answer


@pytest.fixture
def kit() -> Iterator[Kit]:
    opened: list[FakeEndpoint] = []

    def serve(script: Callable[[int, Body], Answer]) -> FakeEndpoint:
        opened.append(FakeEndpoint(script))
        return opened[-1]

    yield Kit(serve)
    for server in opened:
        server.close()
