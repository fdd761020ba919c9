"""The real codex CLI on the scripted model."""

from __future__ import annotations

from agent_orchestrator.testing.model import ModelRequest, ScriptedModel
from agent_orchestrator.testing.sandbox import Sandbox
from tests.agents.labs import AgentLab
from tests.agents.suite import HeadlessAgentSuite, TerminalAgentSuite

FIX_SCRIPT = '[[sh: git rm -q broken.txt]] [[sh: git commit -m "Fix it"]] [[say: The check passes.]]'
GREETING_SCRIPT = "[[write: hello.txt|hello]] [[sh: git add hello.txt]] [[sh: git commit -m Greet]] [[say: It greets.]]"


def follow_instructions(request: ModelRequest) -> str | None:
    """Return the model's script for the daemon's messages, which contain none."""
    if "checks fail" in request.last_user_message:
        return FIX_SCRIPT
    return GREETING_SCRIPT if "Please greet" in request.last_user_message else None


class TestCodex(TerminalAgentSuite):
    agent_name = "codex"

    def test_codex_fixes_a_failed_check_and_a_review_and_its_change_is_merged(
        self, rbox: Sandbox, lab: AgentLab, model: ScriptedModel
    ) -> None:
        model.rule = follow_instructions
        rbox.ao("config", "set", "projects.app.ci.command", "test ! -e broken.txt")
        self.start_session(rbox, lab, lab.commit("broken.txt", "x"))
        rbox.wait_until(lambda: self.session(rbox, "s")["status"] == "review_pending", "its check to pass", 90)
        assert model.count("checks fail") == 1
        rbox.ao("review", "s", "--request-changes", "-m", "Please greet")
        rbox.wait_until(lambda: rbox.session("s")["status"] == "review_pending", "what the review asked for", 90)
        assert model.count("Please greet") == 1
        rbox.ao("review", "s", "--approve")
        rbox.ao("merge", "s")
        merged_files = rbox.git("ls-tree", "--name-only", "main").split()
        assert "hello.txt" in merged_files and "broken.txt" not in merged_files
        assert rbox.session("s")["status"] == "merged"

    def test_an_agent_that_fixes_nothing_is_retried_and_then_a_person_is_notified(
        self, rbox: Sandbox, lab: AgentLab
    ) -> None:
        rbox.ao("config", "set", "projects.app.ci.command", "test ! -e broken.txt")
        rbox.ao("config", "set", "reactions.ci-failed.backoff", "1s..1s")
        self.start_session(rbox, lab, lab.commit("broken.txt", "x"))
        rbox.wait_until(lambda: self.session(rbox, "s")["column"] == "Needs you", "a person to be called", 90)
        session = rbox.session("s")
        assert (session["status"], session["waitingFor"], session["attempts"]) == ("ci_failed", "you", {"ci-failed": 2})


class TestCodexHeadless(HeadlessAgentSuite):
    agent_name = "codex"
