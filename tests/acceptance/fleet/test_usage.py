"""`ao usage`: tokens and cost by session, model, project and day."""

from __future__ import annotations

import json

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused

AGENT = """
import json, os
with open(os.environ["AO_SPOOL"], "a") as spool:
    for line in {lines}:
        spool.write(json.dumps({{"event": "usage", **line}}) + "\\n")
"""


def _run_agent_with_usage(box: Sandbox, name: str, *lines: dict[str, object]) -> None:
    program = box.folder / f"{name}.py"
    program.write_text(AGENT.format(lines=json.dumps(lines)))
    box.ao("new", "use some", "--name", name, "--agent", name)
    box.wait_until(lambda: box.session(name)["exitCode"] == 0, "its end")


def test_tokens_and_dollars_are_added_up(process_box: Sandbox) -> None:
    box = process_box
    programs = {name: ["python3", str(box.folder / f"{name}.py")] for name in ("a", "b")}
    agents = {name: {"tool": "command", "command": command} for name, command in programs.items()}
    settings = {"defaults": {"runtime": "process"}, "projects": {"app": {"path": "."}}, "agents": agents}
    (box.repo / "agent-orchestrator.yaml").write_text(json.dumps(settings))
    box.ao("trust")
    _run_agent_with_usage(
        box,
        "a",
        {"model": "gpt-5", "input": 1_000_000, "output": 100_000, "cache_read": 1_000_000},
        {"model": "gpt-5", "input": 5, "output": 5, "usd": 0.5},
    )
    _run_agent_with_usage(box, "b", {"model": "own", "input": 7, "output": 3, "cache_write": 2, "forge": 3})
    by_session = box.json("usage")
    assert [row["key"] for row in by_session["rows"]] == ["app-a", "app-b"]
    first = by_session["rows"][0]
    assert first["usd"] == 1.25 + 1.0 + 0.125 + 0.5 and first["cacheRead"] == 1_000_000
    assert by_session["rows"][1]["usd"] is None and by_session["rows"][1]["cacheWrite"] == 2
    assert by_session["total"] == {
        "input": 1_000_012,
        "output": 100_008,
        "cacheRead": 1_000_000,
        "cacheWrite": 2,
        "usd": first["usd"],
        "forgeCalls": 3,
    }
    assert {row["key"] for row in box.json("usage", "--by", "model")["rows"]} == {"gpt-5", "own"}
    assert [row["key"] for row in box.json("usage", "--by", "project")["rows"]] == ["app"]
    assert len(box.json("usage", "--by", "day", "--since", "today")["rows"]) == 1
    assert box.json("usage", "--since", "2999-01-01")["rows"] == []
    table = box.ao("usage").stdout
    assert "app-a" in table and "$2.88" in table and "total" in table
    assert_refused(box.ao("usage", "--since", "yesterday", check=False), 2, "for example")
    box.stop(9)
    box.start()
    assert box.json("usage") == by_session
