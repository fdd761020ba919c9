"""What the cases measure with: a client that counts answers, deliveries as GitHub sends them, agents' own notes."""

from __future__ import annotations

import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.plugins.forges.github.webhooks import GitHubHooks
from benchmarks.cases import CASES, EXTRA_CASES
from benchmarks.client import HTTPConnection, measure_request_rate, pin_to_one_core
from benchmarks.forges.webhooks import SECRET, signed_delivery
from benchmarks.sessions import spawn
from benchmarks.sessions.messages import BareDatabase
from benchmarks.sessions.spawn import AgentStarts


class EchoingHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    paths: list[str]

    def do_GET(self) -> None:
        self.paths.append(self.path)
        body = self.path.encode()
        self.send_response(404 if self.path == "/none" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[http.server.ThreadingHTTPServer]:
    EchoingHandler.paths = []
    http_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), EchoingHandler)
    thread = threading.Thread(target=http_server.serve_forever, args=(0.01,))
    thread.start()
    yield http_server
    http_server.shutdown()
    thread.join()
    http_server.server_close()


def address_of(server: http.server.ThreadingHTTPServer) -> tuple[str, int]:
    return "127.0.0.1", server.server_port


def test_a_connection_reads_one_response_per_request(server: http.server.ThreadingHTTPServer) -> None:
    with HTTPConnection.connect(address_of(server)) as line:
        assert [line.get(path) for path in ("/a", "/bcd", "/none", "/e")] == [
            (200, b"/a"),
            (200, b"/bcd"),
            (404, b"/none"),
            (200, b"/e"),
        ]


def test_each_request_is_sent_once_if_repeating_is_off(server: http.server.ThreadingHTTPServer) -> None:
    requests = [f"GET /{number} HTTP/1.1\r\nHost: x\r\n\r\n".encode() for number in range(40)]
    measured = measure_request_rate(os.getpid(), address_of(server), requests, 30.0, repeat=False)
    assert sorted(EchoingHandler.paths) == sorted(f"/{number}" for number in range(40))
    assert measured.per_second > 0
    assert measured.cpu_seconds_each > 0


def test_an_unexpected_response_status_is_an_error(server: http.server.ThreadingHTTPServer) -> None:
    with pytest.raises(RuntimeError, match="another answer than expected"):
        measure_request_rate(os.getpid(), address_of(server), [b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n"], 1.0)


def test_all_threads_are_pinned_to_one_core_and_released_afterwards() -> None:
    before = os.sched_getaffinity(0)
    may_end = threading.Event()
    thread = threading.Thread(target=may_end.wait)
    thread.start()
    try:
        with pin_to_one_core(os.getpid()):
            assert os.sched_getaffinity(thread.native_id or 0) == {min(before)}
        assert os.sched_getaffinity(thread.native_id or 0) == before
    finally:
        may_end.set()
        thread.join()


def test_our_plugin_accepts_the_signed_deliveries_of_the_benchmark() -> None:
    head, _, body = signed_delivery(7, "acme/app", SECRET).partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    assert int(headers["Content-Length"]) == len(body)
    delivery = GitHubHooks().verify(headers, body, [SECRET])
    assert delivery is not None
    hint = GitHubHooks().hint(delivery)
    assert hint is not None
    assert (hint.repo, list(hint.pulls)) == ("acme/app", [8])
    assert GitHubHooks().verify(headers, body, ["another"]) is None


def test_an_agents_start_time_is_read_from_its_own_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    births = AgentStarts(tmp_path / "born.log")
    births.log.write_text("a 10.5\nb 11.25\nc 9.0\nd")
    assert births.last(["a", "b"]) == 11.25
    monkeypatch.setattr(spawn, "TIMEOUT", 0.05)
    with pytest.raises(TimeoutError, match="1 of 2 agents never began"):
        births.last(["c", "d"])


def test_the_commit_of_the_baseline_is_as_durable_as_ours(tmp_path: Path) -> None:
    with BareDatabase(tmp_path / "bare.db") as disk:
        assert disk.commit("x") > 0
        assert disk.durability() == ("wal", 2)


def test_no_case_is_registered_under_two_names() -> None:
    assert not CASES.keys() & EXTRA_CASES.keys()
    modules = [*CASES.values(), *EXTRA_CASES.values()]
    assert len(set(modules)) == len(modules)
