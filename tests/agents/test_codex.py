"""The real codex CLI on the scripted model."""

from __future__ import annotations

from agent_orchestrator.testing.model import Request, ScriptedModel
from agent_orchestrator.testing.sandbox import Sandbox
from tests.agents.labs import Lab
from tests.agents.suite import Driven, HeadlessDriven

MENDS = '[[sh: git rm -q broken.txt]] [[sh: git commit -m "Mend it"]] [[say: The check passes.]]'
GREETS = "[[write: hello.txt|hello]] [[sh: git add hello.txt]] [[sh: git commit -m Greet]] [[say: It greets.]]"


def as_asked(request: Request) -> str | None:
    """A model that does what the daemon sends it, which is no script."""
    if "checks fail" in request.user:
        return MENDS
    return GREETS if "Please greet" in request.user else None


class TestCodex(Driven):
    agent_name = "codex"

    def test_a_red_check_and_a_review_go_back_to_it_and_its_change_lands(
        self, rbox: Sandbox, lab: Lab, model: ScriptedModel
    ) -> None:
        model.rule = as_asked
        rbox.ao("config", "set", "projects.app.ci.command", "test ! -e broken.txt")
        self.new(rbox, lab, lab.commit("broken.txt", "x"))
        rbox.until(lambda: self.look(rbox, "s")["status"] == "review_pending", "its check to be mended", 90)
        assert model.count("checks fail") == 1
        rbox.ao("review", "s", "--request-changes", "-m", "Please greet")
        rbox.until(lambda: rbox.session("s")["status"] == "review_pending", "what the review asked for", 90)
        assert model.count("Please greet") == 1
        rbox.ao("review", "s", "--approve")
        rbox.ao("merge", "s")
        landed = rbox.git("ls-tree", "--name-only", "main").split()
        assert "hello.txt" in landed and "broken.txt" not in landed
        assert rbox.session("s")["status"] == "merged"

    def test_one_that_mends_nothing_is_told_again_and_then_a_person_is_called(self, rbox: Sandbox, lab: Lab) -> None:
        rbox.ao("config", "set", "projects.app.ci.command", "test ! -e broken.txt")
        rbox.ao("config", "set", "reactions.ci-failed.backoff", "1s..1s")
        self.new(rbox, lab, lab.commit("broken.txt", "x"))
        rbox.until(lambda: self.look(rbox, "s")["column"] == "Needs you", "a person to be called", 90)
        called = rbox.session("s")
        assert (called["status"], called["waitingFor"], called["attempts"]) == ("ci_failed", "you", {"ci-failed": 2})


class TestCodexHeadless(HeadlessDriven):
    agent_name = "codex"
