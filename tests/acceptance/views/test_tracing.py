"""Traces, sent to a receiver of OTLP over HTTP; without an endpoint nothing is loaded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.sandbox import Sandbox


@contextmanager
def receiver() -> Iterator[tuple[str, list[Any]]]:
    """Yield the address of a receiver and the spans that it was sent."""
    messages = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    spans: list[Any] = []

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/x-protobuf"
            request = messages.ExportTraceServiceRequest.FromString(body)
            for resource in request.resource_spans:
                names = {attribute.key: attribute.value.string_value for attribute in resource.resource.attributes}
                assert names["service.name"] == "agent-orchestrator"
                spans.extend(span for scope in resource.scope_spans for span in scope.spans)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", spans
        finally:
            server.shutdown()


def test_the_effects_of_a_session_are_recorded_as_traces(tmp_path: Path) -> None:
    with receiver() as (url, spans), Sandbox(tmp_path, "process", {"OTEL_EXPORTER_OTLP_ENDPOINT": url}) as box:
        box.repository()
        box.start()
        box.request("POST", "/api/sessions", {"name": "a", "title": "a", "prompt": "[[sleep: 7200]]"})
        box.wait_until(lambda: box.session("app-a")["status"] == "working", "a at work")
        checks = {check["name"]: check for check in box.request("GET", "/api/doctor")["checks"]}
        assert checks["traces"]["state"] == "ok" and url in checks["traces"]["detail"]
        box.stop()
        names = {span.name for span in spans}
        assert {"decide", "intent prepare", "effect prepare", "intent launch", "effect launch"} <= names
        effect = next(span for span in spans if span.name == "effect launch")
        child_names = {span.name for span in spans if span.parent_span_id == effect.span_id}
        assert "event agent-launched" in child_names
        assert any(span.trace_id == effect.trace_id and not span.parent_span_id for span in spans)


def test_a_missing_receiver_blocks_nothing(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    with Sandbox(tmp_path, "process", env) as box:
        box.repository()
        box.start()
        box.request("POST", "/api/sessions", {"name": "a", "title": "a", "prompt": "[[sleep: 7200]]"})
        box.wait_until(lambda: box.session("app-a")["status"] == "working", "a at work")
        box.stop()


def test_the_tracing_library_is_not_loaded_without_an_endpoint(process_box: Sandbox) -> None:
    process_box.request("GET", "/api/doctor")
    maps = Path(f"/proc/{process_box.daemon_pid()}/maps").read_text()
    assert "traces" not in {check["name"] for check in process_box.request("GET", "/api/doctor")["checks"]}
    assert "google/_upb" not in maps and "opentelemetry" not in maps
