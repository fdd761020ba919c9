"""`/metrics`, read with a parser of the Prometheus format."""

from __future__ import annotations

import json
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from prometheus_client.parser import text_string_to_metric_families

from agent_orchestrator.testing.sandbox import Sandbox

FAMILIES = {
    "ao_build_info",
    "ao_sessions",
    "ao_sessions_waiting",
    "ao_messages",
    "ao_merge_queue_length",
    "ao_nodes",
    "ao_accounts_held",
    "ao_agent_tokens",
    "ao_agent_dollars",
    "ao_effects_pending",
    "ao_effects_due",
    "ao_effects_oldest_seconds",
    "ao_events",
    "ao_webhooks",
    "ao_notifications",
    "ao_database_bytes",
    "ao_loop_stalls",
    "ao_loop_stalled_seconds",
    "ao_loop_longest_stall_seconds",
    "ao_forge_requests",
    "ao_forge_budget_remaining",
    "ao_forge_budget_limit",
    "ao_http_requests",
    "ao_http_request_seconds",
}
Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]


def read_metrics(box: Sandbox) -> tuple[Samples, set[str]]:
    text = box.ao("api", "GET", "/metrics").stdout
    samples: Samples = {}
    names = set()
    for family in text_string_to_metric_families(text):
        names.add(family.name)
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return samples, names


def sample_sum(samples: Samples, name: str, **labels: str) -> float:
    """Return the sum of the samples with these labels."""
    expected = set(labels.items())
    return sum(count for sample_labels, count in samples.get(name, {}).items() if expected <= set(sample_labels))


def test_the_metrics_count_what_happened(process_box: Sandbox) -> None:
    process_box.request(
        "POST",
        "/api/sessions",
        {"name": "a", "title": "a", "prompt": "[[usage: input=120 output=30 usd=0.5]] [[sleep: 7200]]"},
    )
    process_box.wait_until(lambda: process_box.session("app-a")["usage"]["usd"], "a at work")
    process_box.request("POST", "/api/sessions/app-a/message", {"content": "hello"})
    assert request_over_tcp(process_box, "/api/webhooks/github", "", b"{}")[0] == 401
    process_box.wait_until(
        lambda: sample_sum(read_metrics(process_box)[0], "ao_messages", state="delivered") >= 1, "the message delivered"
    )
    before, names = read_metrics(process_box)
    assert names >= FAMILIES
    assert sample_sum(before, "ao_sessions", project="app", status="working", column="Working") == 1
    assert sample_sum(before, "ao_events_total", type="session-created") == 1
    assert sample_sum(before, "ao_webhooks_total", forge="github", outcome="refused") == 1
    assert sample_sum(before, "ao_http_requests_total", method="POST", route="/api/sessions", status="201") == 1
    assert sample_sum(before, "ao_http_requests_total", route="/api/webhooks/{name}", status="401") == 1
    assert sample_sum(before, "ao_http_requests_total", method="GET", route="/metrics", status="200") >= 1
    assert sample_sum(before, "ao_http_request_seconds_count", route="/metrics") >= 1
    assert sample_sum(before, "ao_agent_tokens_total", project="app", agent="demo", kind="input") == 120
    assert sample_sum(before, "ao_agent_dollars_total", project="app") == 0.5
    assert sample_sum(before, "ao_database_bytes") > 4096
    assert sample_sum(before, "process_resident_memory_bytes") > 1 << 20 and sample_sum(before, "process_open_fds") > 3
    for _ in range(3):
        process_box.request("GET", "/api/sessions")
    after, _ = read_metrics(process_box)
    listed = {"route": "/api/sessions", "method": "GET", "status": "200"}
    assert (
        sample_sum(after, "ao_http_requests_total", **listed)
        == sample_sum(before, "ao_http_requests_total", **listed) + 3
    )


def test_requests_cannot_create_new_labels(process_box: Sandbox) -> None:
    process_box.request("POST", "/api/sessions", {"name": "secret-name", "title": "t", "prompt": "[[sleep: 7200]]"})
    process_box.wait_until(lambda: process_box.session("app-secret-name")["status"] == "working", "it at work")
    before, _ = read_metrics(process_box)
    token = process_box.request("POST", "/api/tokens", {"name": "x", "role": "viewer"})["token"]
    for number in range(20):
        for path in (f"/api/sessions/no-{number}", f"/api/nothing-{number}"):
            assert request_over_tcp(process_box, path, token)[0] == 404
    process_box.ao("status", "app-secret-name")
    after, _ = read_metrics(process_box)
    text = json.dumps([[list(map(list, labels)) for labels in family] for family in after.values()])
    assert "secret-name" not in text and "no-1" not in text and "nothing" not in text
    assert sample_sum(after, "ao_http_requests_total", route="/api/sessions/{id}", status="200") >= 1
    assert len(after["ao_http_requests_total"]) <= len(before["ao_http_requests_total"]) + 4


def test_metrics_over_tcp_need_a_token_of_at_least_a_viewer(process_box: Sandbox) -> None:
    assert request_over_tcp(process_box, "/metrics", "")[0] == 401
    token = process_box.request("POST", "/api/tokens", {"name": "prometheus", "role": "viewer"})["token"]
    status, text = request_over_tcp(process_box, "/metrics", token)
    assert status == 200
    assert "ao_build_info" in {family.name for family in text_string_to_metric_families(text)}


def request_over_tcp(box: Sandbox, path: str, token: str, body: bytes | None = None) -> tuple[int, str]:
    request = Request(
        json.loads(box.home.daemon_info.read_text())["url"] + path, body, {"Content-Type": "application/json"}
    )
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, ""
