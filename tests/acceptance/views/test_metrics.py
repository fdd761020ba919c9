"""`/metrics`: what a monitoring system is told, by a real daemon, as a parser of its format reads it."""

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
Found = dict[str, dict[tuple[tuple[str, str], ...], float]]


def read(box: Sandbox) -> tuple[Found, set[str]]:
    text = box.ao("api", "GET", "/metrics").stdout
    found: Found = {}
    names = set()
    for family in text_string_to_metric_families(text):
        names.add(family.name)
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found, names


def value(found: Found, name: str, **labels: str) -> float:
    """The sum of what has these labels."""
    wanted = set(labels.items())
    return sum(count for place, count in found.get(name, {}).items() if wanted <= set(place))


def test_what_happened_is_in_the_figures(process_box: Sandbox) -> None:
    process_box.request(
        "POST",
        "/api/sessions",
        {"name": "a", "title": "a", "prompt": "[[usage: input=120 output=30 usd=0.5]] [[sleep: 7200]]"},
    )
    process_box.until(lambda: process_box.session("app-a")["usage"]["usd"], "a at work")
    process_box.request("POST", "/api/sessions/app-a/message", {"content": "hello"})
    assert tcp(process_box, "/api/webhooks/github", "", b"{}")[0] == 401
    process_box.until(
        lambda: value(read(process_box)[0], "ao_messages", state="delivered") >= 1, "the message delivered"
    )
    before, names = read(process_box)
    assert names >= FAMILIES
    assert value(before, "ao_sessions", project="app", status="working", column="Working") == 1
    assert value(before, "ao_events_total", type="session-created") == 1
    assert value(before, "ao_webhooks_total", forge="github", outcome="refused") == 1
    assert value(before, "ao_http_requests_total", method="POST", route="/api/sessions", status="201") == 1
    assert value(before, "ao_http_requests_total", route="/api/webhooks/{name}", status="401") == 1
    assert value(before, "ao_http_requests_total", method="GET", route="/metrics", status="200") >= 1
    assert value(before, "ao_http_request_seconds_count", route="/metrics") >= 1
    assert value(before, "ao_agent_tokens_total", project="app", agent="demo", kind="input") == 120
    assert value(before, "ao_agent_dollars_total", project="app") == 0.5
    assert value(before, "ao_database_bytes") > 4096
    assert value(before, "process_resident_memory_bytes") > 1 << 20 and value(before, "process_open_fds") > 3
    for _ in range(3):
        process_box.request("GET", "/api/sessions")
    after, _ = read(process_box)
    listed = {"route": "/api/sessions", "method": "GET", "status": "200"}
    assert value(after, "ao_http_requests_total", **listed) == value(before, "ao_http_requests_total", **listed) + 3


def test_nobody_makes_up_labels(process_box: Sandbox) -> None:
    process_box.request("POST", "/api/sessions", {"name": "secret-name", "title": "t", "prompt": "[[sleep: 7200]]"})
    process_box.until(lambda: process_box.session("app-secret-name")["status"] == "working", "it at work")
    before, _ = read(process_box)
    token = process_box.request("POST", "/api/tokens", {"name": "x", "role": "viewer"})["token"]
    for number in range(20):
        for path in (f"/api/sessions/no-{number}", f"/api/nothing-{number}"):
            assert tcp(process_box, path, token)[0] == 404
    process_box.ao("status", "app-secret-name")
    after, _ = read(process_box)
    text = json.dumps([[list(map(list, place)) for place in family] for family in after.values()])
    assert "secret-name" not in text and "no-1" not in text and "nothing" not in text
    assert value(after, "ao_http_requests_total", route="/api/sessions/{id}", status="200") >= 1
    assert len(after["ao_http_requests_total"]) <= len(before["ao_http_requests_total"]) + 4


def test_over_tcp_it_needs_a_token_and_a_viewers_is_enough(process_box: Sandbox) -> None:
    assert tcp(process_box, "/metrics", "")[0] == 401
    token = process_box.request("POST", "/api/tokens", {"name": "prometheus", "role": "viewer"})["token"]
    status, text = tcp(process_box, "/metrics", token)
    assert status == 200
    assert "ao_build_info" in {family.name for family in text_string_to_metric_families(text)}


def tcp(box: Sandbox, path: str, token: str, body: bytes | None = None) -> tuple[int, str]:
    asked = Request(json.loads(box.home.info.read_text())["url"] + path, body, {"Content-Type": "application/json"})
    if token:
        asked.add_header("Authorization", f"Bearer {token}")
    try:
        with urlopen(asked, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, ""
