"""Names on the link stay what they are when the code's change: daemon and nodes may be of different versions."""

from __future__ import annotations

from agent_orchestrator.cluster.link.calls import CALLS, from_json, to_json
from agent_orchestrator.protocols import (
    AgentLaunch,
    Delivery,
    Liveness,
    NotReady,
    ProbeFailed,
    ReadyToType,
    ReportBatch,
)
from agent_orchestrator.protocols.reports import MessageTakenReport


def test_a_renamed_class_keeps_its_name_on_the_link() -> None:
    for hint, value, name in (
        (Liveness, ProbeFailed("no answer"), "Unseen"),
        (Delivery, NotReady("a person is typing"), "Held"),
        (Delivery | ReadyToType, ReadyToType(("C-u",)), "Typable"),
    ):
        data = to_json(hint, value)
        assert data["is"] == name and from_json(hint, data) == value


def test_a_renamed_field_keeps_its_name_on_the_link() -> None:
    launch = AgentLaunch(("cli",), plugin_data={"port": "4711"})
    data = to_json(AgentLaunch, launch)
    assert data["memo"] == {"port": "4711"} and "plugin_data" not in data
    assert from_json(AgentLaunch, data) == launch
    batch = ReportBatch((MessageTakenReport("go"),), "transcript", "chat", 1, 2)
    data = to_json(ReportBatch, batch)
    assert data["place"] == "chat" and data["reports"][0]["is"] == "TookReport"
    assert from_json(ReportBatch, data) == batch


def test_a_renamed_method_keeps_its_name_on_the_link() -> None:
    assert CALLS["runtime.leftovers"].method == "orphaned_terminals"
    assert CALLS["runtime.leftovers"].arguments_to_json({"expected": []}) == {"known": []}
    assert CALLS["runtime.leftovers"].arguments_from_json({"known": []}) == {"expected": ()}
    assert "memo" in to_json(CALLS["agent.deliver"].parameters["run"], _run())


def _run() -> object:
    run_class = CALLS["agent.deliver"].parameters["run"]
    return run_class("app-fix", 1, 4711, "1", "/w", None, {}, {})
