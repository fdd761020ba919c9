"""Tests for every real agent, through the public interface, with the scripted model's log as independent evidence.

    class TestMyAgent(Driven):
        agent_name = "my-agent"

`labs.py` lists what an agent can do; a test that needs more is skipped with the reason.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.plugins.agents.shared.spool import clean_text
from agent_orchestrator.testing.model import ScriptedModel
from agent_orchestrator.testing.sandbox import Sandbox
from tests.agents.labs import AgentLab

HOSTILE_TEXT = "end \x1b[201~ of paste\nsecond line\twith a tab\n\nnul \0 bell \a, ünïcödé 日本 🚀 `id` $(id) #{pane_id} %1 'q' \"d\""
LONG_TEXT = "\n".join(f"line {number}: " + "lorem ipsum dolor sit amet – " * 3 for number in range(500))


def collapse_whitespace(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def expand_pasted_file(text: str) -> str:
    """Return the text with the content of the file that the model got in place of a long text."""
    pasted = re.search(r'<pasted_content file="([^"]+)"[^>]*/>', text)
    return text.replace(pasted[0], Path(pasted[1]).read_text()) if pasted else text


class AgentSuite:
    """The tests for every agent."""

    agent_name: str

    @pytest.fixture
    def agent(self) -> str:
        return self.agent_name

    def require(self, lab: AgentLab, ability: str) -> None:
        if ability not in lab.abilities:
            pytest.skip(f"{lab.agent} cannot: {ability}")

    def start_session(self, box: Sandbox, lab: AgentLab, task: str, name: str = "s") -> dict[str, Any]:
        """Start a session and wait until its agent has reported an activity."""
        box.ao("new", task, "--name", name)
        silent_states = ("starting", "unknown")
        box.wait_until(
            lambda: self.session(box, name)["activity"] not in silent_states,
            f"a report of {lab.agent}",
            lab.start_timeout,
        )
        return box.session(name)

    def session(self, box: Sandbox, name: str) -> dict[str, Any]:
        session = box.session(name)
        assert session["status"] != "failed" or session["exitCode"] == 137, (session["why"], session["lastOutput"])
        return session

    def wait_until_idle(self, box: Sandbox, name: str = "s", within: float = 60.0) -> dict[str, Any]:
        box.wait_until(lambda: self.session(box, name)["activity"] == "idle", f"{name} to be idle", within)
        return box.session(name)

    def count_turns(self, box: Sandbox, name: str = "s") -> int:
        return sum(event["type"] == "agent-turn-ended" for event in box.events(name))

    def screen(self, box: Sandbox, session: dict[str, Any]) -> str:
        process = subprocess.run([*self._tmux(box, session), "-p"], capture_output=True, text=True, check=True)
        return process.stdout

    def _tmux(self, box: Sandbox, session: dict[str, Any], command: str = "capture-pane") -> list[str]:
        launch_event = next(event for event in reversed(box.events(session["id"])) if event["type"] == "agent-launched")
        address = launch_event["data"]["handle"]["address"]
        return ["tmux", "-N", "-S", address["socket"], command, "-t", address["pane"]]

    def press(self, box: Sandbox, session: dict[str, Any], *keys: str) -> None:
        """Press keys in the session's terminal."""
        subprocess.run([*self._tmux(box, session, "send-keys"), *keys], check=True)

    def test_the_first_prompt_is_worked_on_and_committed(
        self, rbox: Sandbox, lab: AgentLab, model: ScriptedModel
    ) -> None:
        self.start_session(rbox, lab, lab.commit("made.txt", "hello"))
        rbox.wait_until(lambda: self.session(rbox, "s")["pr"], "its commit", 90)
        session = self.wait_until_idle(rbox)
        assert rbox.git("show", f"{session['branch']}:made.txt").strip() == "hello"
        rbox.wait_until(lambda: rbox.session("s")["pr"]["state"] == "open", "ready for review: everything is committed")
        assert model.count("made.txt") == 1
        assert session["evidence"]["source"] not in ("daemon",), session["evidence"]
        workspace = Path(rbox.session("s")["workspacePath"])
        assert rbox.git("status", "--porcelain", cwd=workspace) == "", "it left something in the workspace"

    def test_a_second_message_arrives_once(self, rbox: Sandbox, lab: AgentLab, model: ScriptedModel) -> None:
        self.start_session(rbox, lab, "Begin. [[say: Ready.]]")
        self.wait_until_idle(rbox)
        sent = rbox.json("send", "s", "second message [[say: Understood.]]", "--wait")
        assert sent["state"] in ("acknowledged", "delivered")
        rbox.wait_until(lambda: model.count("second message") == 1, "the second message", 30)
        self.wait_until_idle(rbox)
        assert model.count("second message") == 1

    def test_a_killed_agent_is_restored_in_the_same_conversation(
        self, rbox: Sandbox, lab: AgentLab, model: ScriptedModel
    ) -> None:
        self.require(lab, "resume")
        session = self.start_session(rbox, lab, "Remember the word xylophone. [[say: Ready.]]")
        self.wait_until_idle(rbox)
        os.kill(session["pid"], signal.SIGKILL)
        rbox.wait_until(lambda: rbox.session("s")["status"] == "failed", "its end to be recorded")
        rbox.ao("restore", "s")
        rbox.wait_until(lambda: self.session(rbox, "s")["activity"] == "idle", "the restored agent", lab.start_timeout)
        rbox.ao("send", "s", "after the crash [[say: Here.]]")
        rbox.wait_until(lambda: model.count("after the crash") == 1, "the message after the crash", 40)
        last_request = next(
            request for request in reversed(model.requests) if "after the crash" in request.last_user_message
        )
        assert any("xylophone" in text for text in last_request.user_messages), "it is another conversation"


class TerminalAgentSuite(AgentSuite):
    """All tests of an agent with a terminal."""

    def test_long_and_hostile_text_arrives_unchanged(self, rbox: Sandbox, lab: AgentLab, model: ScriptedModel) -> None:
        self.start_session(rbox, lab, "Begin. [[say: Ready.]]")
        self.wait_until_idle(rbox)
        for text in (HOSTILE_TEXT, LONG_TEXT):
            rbox.request("POST", "/api/sessions/s/message", {"content": text})
            expected_text = collapse_whitespace(clean_text(text))
            rbox.wait_until(
                lambda expected_text=expected_text: any(
                    expected_text in collapse_whitespace(expand_pasted_file(arrival.text))
                    for arrival in model.arrivals()
                ),  # type: ignore[misc]
                f"{text[:20]!r} to arrive whole",
                40,
            )
            self.wait_until_idle(rbox)

        def states() -> list[str]:
            return [message["state"] for message in rbox.request("GET", "/api/sessions/s/messages")["messages"]]

        rbox.wait_until(lambda: states()[-2:] == ["acknowledged", "acknowledged"], "both to be acknowledged", 10)

    def test_a_message_to_a_busy_agent_arrives_once(self, rbox: Sandbox, lab: AgentLab, model: ScriptedModel) -> None:
        self.require(lab, "queue")
        self.start_session(rbox, lab, "Begin. [[hang: work]] [[say: First done.]]")
        model.wait_for(lambda exchange: exchange.held == "work", 40)
        rbox.wait_until(lambda: self.session(rbox, "s")["activity"] == "active", "its turn")
        sent = rbox.json("send", "s", "while busy [[say: Second done.]]")
        path = f"/api/sessions/s/messages/{sent['messageId']}"
        rbox.wait_until(lambda: rbox.request("GET", path)["state"] in ("delivered", "acknowledged"), "its delivery")
        model.release("work")
        rbox.wait_until(lambda: rbox.request("GET", path)["state"] == "acknowledged", "its acknowledgement", 40)
        rbox.wait_until(lambda: model.count("while busy") == 1, "the message", 40)
        self.wait_until_idle(rbox)
        assert model.count("while busy") == 1

    def test_the_shown_activity_follows_the_turn(self, rbox: Sandbox, lab: AgentLab, model: ScriptedModel) -> None:
        self.start_session(rbox, lab, "Begin. [[hang: a]] [[say: Done.]]")
        model.wait_for(lambda exchange: exchange.held == "a", 40)
        rbox.wait_until(lambda: self.session(rbox, "s")["activity"] == "active", "active", 2)
        model.release("a")
        rbox.wait_until(lambda: self.session(rbox, "s")["activity"] == "idle", "idle", 3)
        rbox.ao("send", "s", "Which? [[say: Which database shall I use?]]")
        rbox.wait_until(lambda: self.session(rbox, "s")["status"] == "needs_input", "its question", 20)
        assert "Which database" in rbox.session("s")["waitingFor"]

    @pytest.mark.parametrize("permissions", ["default"])
    @pytest.mark.parametrize("decision", ["allow", "always", "deny"])
    def test_answers_to_a_permission_dialog_take_effect(
        self, rbox: Sandbox, lab: AgentLab, model: ScriptedModel, decision: str
    ) -> None:
        self.require(lab, "dialog")
        self.start_session(rbox, lab, f"Do it. {lab.ask('touch asked.txt')} [[say: Done.]]")
        rbox.wait_until(lambda: self.session(rbox, "s")["status"] == "blocked", "the dialog", 40)
        permission = rbox.json("answer", "s")["questions"][0]["permission"]
        assert permission and "touch asked.txt" in permission["command"]
        held_message = rbox.json("send", "s", "meanwhile [[say: Later.]]")
        path = f"/api/sessions/s/messages/{held_message['messageId']}"
        rbox.wait_until(lambda: rbox.request("GET", path)["state"] == "held", "the message to be held")
        rbox.ao("answer", "s", f"--{decision}")
        created_file = Path(rbox.session("s")["workspacePath"]) / "asked.txt"
        if decision == "deny":
            rbox.wait_until(lambda: self.session(rbox, "s")["status"] != "blocked", "the denial", 20)
            assert not created_file.exists()
        else:
            rbox.wait_until(created_file.exists, "what it was allowed to do", 20)
        rbox.wait_until(lambda: rbox.request("GET", path)["state"] == "acknowledged", "the held message", 40)
        rbox.wait_until(lambda: model.count("meanwhile") == 1, "the held message at the model", 20)
        assert created_file.exists() == (decision != "deny")

    def test_escape_interrupts_the_turn_and_keeps_the_session(
        self, rbox: Sandbox, lab: AgentLab, model: ScriptedModel
    ) -> None:
        self.require(lab, "escape")
        self.start_session(rbox, lab, "Begin. [[hang: a]] [[say: Done.]]")
        model.wait_for(lambda exchange: exchange.held == "a", 40)
        rbox.wait_until(lambda: self.session(rbox, "s")["activity"] == "active", "its turn")
        keys = {"aider": ("C-c",), "copilot": ("C-c",), "goose": ("C-c",), "opencode": ("Escape", "Escape")}.get(
            lab.agent, ("Escape",)
        )
        for key in keys:
            self.press(rbox, rbox.session("s"), key)
            time.sleep(1.0)  # two keys at once would be read as another key
        rbox.wait_until(lambda: self.session(rbox, "s")["activity"] == "interrupted", "the interruption", 10)
        assert rbox.session("s")["status"] == "interrupted"
        model.release("a")
        rbox.ao("send", "s", "go on [[say: Going on.]]")
        rbox.wait_until(lambda: model.count("go on") == 1, "the next message", 20)
        self.wait_until_idle(rbox)

    def test_interrupt_stops_the_turn_and_then_delivers_the_message(
        self, rbox: Sandbox, lab: AgentLab, model: ScriptedModel
    ) -> None:
        self.require(lab, "escape")
        self.start_session(rbox, lab, "Begin. [[hang: a]] [[say: Done.]]")
        held_exchange = model.wait_for(lambda exchange: exchange.held == "a", 40)
        rbox.wait_until(lambda: self.session(rbox, "s")["activity"] == "active", "its turn")
        rbox.ao("send", "s", "instead do this [[say: Doing that.]]", "--interrupt")
        rbox.wait_until(lambda: model.count("instead do this") == 1, "the message", 30)
        assert held_exchange.outcome in ("left", "open") and held_exchange.reply.text != ""
        self.wait_until_idle(rbox)

    @pytest.mark.parametrize("status", [429, 500, 529])
    def test_an_api_error_is_shown_and_recovered_from(
        self, rbox: Sandbox, lab: AgentLab, model: ScriptedModel, status: int
    ) -> None:
        self.start_session(rbox, lab, "Begin. [[say: Ready.]]")
        self.wait_until_idle(rbox)
        rbox.ao("send", "s", f"try [[error: {status} x{lab.failure_count}]] [[say: Worked at last.]]")
        if status in lab.final_statuses:
            rbox.wait_until(lambda: self.session(rbox, "s")["activity"] == "interrupted", "the failed turn", 30)
            assert str(status) in rbox.session("s")["why"]
            rbox.ao("send", "s", "once more [[say: Worked at last.]]")
        elif "retrying" in lab.abilities:
            rbox.wait_until(lambda: self.session(rbox, "s")["activity"] == "retrying", "the retries to be shown", 30)
            assert rbox.session("s")["status"] == "working"
        rbox.wait_until(lambda: model.count("try") >= 1, "the message", 40)
        rbox.wait_until(lambda: self.session(rbox, "s")["activity"] == "idle", "the end of the turn", 90)

    def test_a_usage_limit_is_shown_with_its_reset(self, rbox: Sandbox, lab: AgentLab) -> None:
        self.require(lab, "limit")
        self.start_session(rbox, lab, "Begin. [[say: Ready.]]")
        self.wait_until_idle(rbox)
        rbox.ao("send", "s", "more [[limit: 3600]]")
        rbox.wait_until(lambda: self.session(rbox, "s")["status"] == "limited", "the limit", 40)
        limit_event = next(event for event in rbox.events("s") if event["type"] == "agent-limit")
        assert limit_event["data"]["resetsAt"]

    def test_two_simultaneous_sessions_do_not_mix_their_files(
        self, rbox: Sandbox, lab: AgentLab, model: ScriptedModel
    ) -> None:
        for name in ("a", "b"):
            rbox.ao("new", lab.commit(f"{name}.txt", name), "--name", name, "--no-wait")
        for name, other in (("a", "b"), ("b", "a")):
            rbox.wait_until(lambda name=name: self.session(rbox, name)["pr"], f"{name}'s commit", 120)  # type: ignore[misc]
            session = self.wait_until_idle(rbox, name)
            files = rbox.git("ls-tree", "--name-only", session["branch"]).split()
            assert f"{name}.txt" in files and f"{other}.txt" not in files
        assert model.count("a.txt") == 1 and model.count("b.txt") == 1

    def test_usage_is_counted(self, rbox: Sandbox, lab: AgentLab) -> None:
        self.require(lab, "usage")
        self.start_session(rbox, lab, "Begin. [[usage: input=1000 output=50]] [[say: Ready.]]")
        self.wait_until_idle(rbox)
        usage = rbox.wait_until(lambda: (now := rbox.session("s")["usage"])["output"] and now, "its usage", 10)
        assert usage["output"] >= 50 and usage["input"] > 0

    def test_the_agents_plan_is_shown_as_progress(self, rbox: Sandbox, lab: AgentLab) -> None:
        self.require(lab, "todo")
        self.start_session(rbox, lab, "Plan. [[todo: x one; > two; - three]] [[say: Planned.]]")

        def progress() -> tuple[int, int]:
            now = rbox.session("s")["progress"]
            return now["done"], now["total"]

        rbox.wait_until(lambda: progress() == (1, 3), "its plan", 40)

    def test_the_system_prompt_contains_the_rules(self, rbox: Sandbox, lab: AgentLab, model: ScriptedModel) -> None:
        self.require(lab, "system")
        self.start_session(rbox, lab, "Begin. [[say: Ready.]]")
        self.wait_until_idle(rbox)
        assert any("Work only in this folder" in str(request.body) for request in model.requests)

    def test_a_daemon_killed_during_a_turn_loses_and_repeats_nothing(
        self, rbox: Sandbox, lab: AgentLab, model: ScriptedModel
    ) -> None:
        self.start_session(rbox, lab, "Begin. [[hang: a]] [[say: Done at last.]]")
        model.wait_for(lambda exchange: exchange.held == "a", 40)
        rbox.stop(signal.SIGKILL)
        model.release("a")
        rbox.start()
        self.wait_until_idle(rbox)
        rbox.ao("send", "s", "and now [[say: Now.]]")
        rbox.wait_until(lambda: model.count("and now") == 1, "the next message", 30)
        self.wait_until_idle(rbox)
        rbox.wait_until(lambda: self.count_turns(rbox) >= 2, "its second turn", 10)
        assert self.count_turns(rbox) == 2


class HeadlessAgentSuite(AgentSuite):
    """Tests of an agent in headless mode: one turn per message."""

    @pytest.fixture
    def mode(self) -> str:
        return "headless"

    def test_usage_and_conversation_come_from_the_structured_output(
        self, rbox: Sandbox, lab: AgentLab, model: ScriptedModel
    ) -> None:
        self.start_session(rbox, lab, "Remember xylophone. [[usage: input=1000 output=50]] [[say: First answer.]]")
        self.wait_until_idle(rbox)
        assert rbox.session("s")["usage"]["output"] >= 50
        assert "First answer." in rbox.ao("logs", "s").stdout
        rbox.ao("send", "s", "second [[say: Second answer.]]", "--wait")
        rbox.wait_until(
            lambda: any("second" in request.last_user_message for request in model.requests), "the second turn", 40
        )
        self.wait_until_idle(rbox)
        assert rbox.ao("logs", "s").stdout.count("Second answer.") == 2, "the message, and the answer"
        last_request = next(request for request in reversed(model.requests) if "second" in request.last_user_message)
        assert any("xylophone" in text for text in last_request.user_messages), "it is another conversation"
        output = rbox.session("s")["usage"]["output"]
        assert output + 50 >= 100, f"usage of two turns: {output}"
