"""A real agent plans: held to the schema by its own CLI, asked again in the same conversation, and its plan is carried out by it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_orchestrator.testing.model import ScriptedModel
from agent_orchestrator.testing.model.conversation import Request
from agent_orchestrator.testing.model.replies import Call, Reply
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.forging import status
from tests.agents.labs import Lab

PLENTY = 120.0


@pytest.fixture(params=["claude-code", "codex"])
def agent(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def task(lab: Lab, name: str, *after: str) -> dict[str, Any]:
    return {
        "id": name,
        "title": f"Make {name}",
        "description": lab.commit(f"{name}.txt", name),
        "acceptance": [f"{name}.txt is there"],
        "dependencies": list(after),
        "effort": "small",
        "labels": [],
        "files": [f"{name}.txt"],
        "profile": None,
        "priority": 0,
        "issue": None,
    }


def answering(model: ScriptedModel, *plans: dict[str, Any]) -> None:
    """Let the model answer with these plans, one after the other, as the agent wants them."""

    def rule(request: Request) -> Reply | None:
        asked = sum("Make a plan for this goal" in text or "This plan cannot be used" in text for text in request.users)
        if not asked:
            return None
        plan = plans[min(asked, len(plans)) - 1]
        if "StructuredOutput" not in request.tools:
            return Reply(json.dumps(plan))
        return Reply("Done.") if request.results else Reply(calls=(Call("StructuredOutput", plan),))

    model.rule = rule


def test_a_goal_is_planned_corrected_applied_and_landed(rbox: Sandbox, model: ScriptedModel, lab: Lab) -> None:
    cyclic = {"tasks": [task(lab, "a", "b"), task(lab, "b", "a")], "notes": []}
    good = {"tasks": [task(lab, "a"), task(lab, "b", "a")], "notes": ["in order"]}
    answering(model, cyclic, good)
    made = rbox.json("plan", "Make both files", "--apply")
    assert (made["state"], made["notes"], made["agent"]) == ("applied", ["in order"], lab.agent)
    assert made["usage"]["input"] > 0 and made["usage"]["output"] > 0
    assert [row["dependencies"] for row in made["tasks"]] == [[], ["a"]]
    asked = [
        request for request in model.requests if any("Make a plan for this goal" in text for text in request.users)
    ]
    assert any("these tasks wait for one another: a → b → a" in text for text in asked[-1].users)
    assert not any("wrote to the copy" in note for note in made["notes"])
    status(rbox, "make-a", "review_pending", "mergeable")
    assert [row["issue"] for row in rbox.sessions()] == ["1"]
    rbox.ao("merge", "make-a")
    status(rbox, "make-b", "review_pending", "mergeable")
    rbox.ao("merge", "make-b")
    done = rbox.until(lambda: _done(rbox), "both to be done", PLENTY)
    assert [row["status"] for row in done["tasks"]] == ["done", "done"]
    assert rbox.git("show", "main:b.txt") == "b"


def _done(box: Sandbox) -> dict[str, Any]:
    found: dict[str, Any] = box.json("plan", "P1")
    return found if all(row["status"] == "done" for row in found["tasks"]) else {}
