"""What every real agent must do, through the public surface, with the scripted model's own log as the independent evidence.

    class TestMyAgent(Driven):
        agent_name = "my-agent"

`labs.py` says what an agent can do; a test that asks for more is skipped by name.
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
from tests.agents.labs import Lab

HOSTILE = "end \x1b[201~ of paste\nsecond line\twith a tab\n\nnul \0 bell \a, ünïcödé 日本 🚀 `id` $(id) #{pane_id} %1 'q' \"d\""
LONG = "\n".join(f"line {number}: " + "lorem ipsum dolor sit amet – " * 3 for number in range(500))


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def unfolded(text: str) -> str:
    """With the file that the model was given instead of a long text."""
    found = re.search(r'<pasted_content file="([^"]+)"[^>]*/>', text)
    return text.replace(found[0], Path(found[1]).read_text()) if found else text


class Basic:
    """The basic case."""

    agent_name: str

    @pytest.fixture
    def agent(self) -> str:
        return self.agent_name

    def need(self, lab: Lab, ability: str) -> None:
        if ability not in lab.can:
            pytest.skip(f"{lab.agent} cannot: {ability}")

    def new(self, box: Sandbox, lab: Lab, task: str, name: str = "s") -> dict[str, Any]:
        """Start a session and wait until its agent has spoken."""
        box.ao("new", task, "--name", name)
        spoken = ("starting", "unknown")
        box.until(lambda: self.look(box, name)["activity"] not in spoken, f"{lab.agent} to speak", lab.start_within)
        return box.session(name)

    def look(self, box: Sandbox, name: str) -> dict[str, Any]:
        session = box.session(name)
        assert session["status"] != "failed" or session["exitCode"] == 137, (session["why"], session["lastOutput"])
        return session

    def idle(self, box: Sandbox, name: str = "s", within: float = 60.0) -> dict[str, Any]:
        box.until(lambda: self.look(box, name)["activity"] == "idle", f"{name} to be idle", within)
        return box.session(name)

    def turns(self, box: Sandbox, name: str = "s") -> int:
        return sum(one["type"] == "agent-turn-ended" for one in box.events(name))

    def screen(self, box: Sandbox, session: dict[str, Any]) -> str:
        done = subprocess.run([*self._tmux(box, session), "-p"], capture_output=True, text=True, check=True)
        return done.stdout

    def _tmux(self, box: Sandbox, session: dict[str, Any], command: str = "capture-pane") -> list[str]:
        handle = next(one for one in reversed(box.events(session["id"])) if one["type"] == "agent-launched")
        address = handle["data"]["handle"]["address"]
        return ["tmux", "-N", "-S", address["socket"], command, "-t", address["pane"]]

    def press(self, box: Sandbox, session: dict[str, Any], *keys: str) -> None:
        """A person presses keys in the session's terminal."""
        subprocess.run([*self._tmux(box, session, "send-keys"), *keys], check=True)

    def test_the_first_prompt_is_worked_on_and_committed(self, rbox: Sandbox, lab: Lab, model: ScriptedModel) -> None:
        self.new(rbox, lab, lab.commit("made.txt", "hello"))
        rbox.until(lambda: self.look(rbox, "s")["pr"], "its commit", 90)
        done = self.idle(rbox)
        assert rbox.git("show", f"{done['branch']}:made.txt").strip() == "hello"
        rbox.until(lambda: rbox.session("s")["pr"]["state"] == "open", "ready for review: everything is committed")
        assert model.count("made.txt") == 1
        assert done["evidence"]["source"] not in ("daemon",), done["evidence"]
        workspace = Path(rbox.session("s")["workspacePath"])
        assert rbox.git("status", "--porcelain", cwd=workspace) == "", "it left something in the workspace"

    def test_a_second_message_arrives_once(self, rbox: Sandbox, lab: Lab, model: ScriptedModel) -> None:
        self.new(rbox, lab, "Begin. [[say: Ready.]]")
        self.idle(rbox)
        sent = rbox.json("send", "s", "second message [[say: Understood.]]", "--wait")
        assert sent["state"] in ("acknowledged", "delivered")
        rbox.until(lambda: model.count("second message") == 1, "the second message", 30)
        self.idle(rbox)
        assert model.count("second message") == 1

    def test_killed_it_is_brought_back_in_the_same_conversation(
        self, rbox: Sandbox, lab: Lab, model: ScriptedModel
    ) -> None:
        self.need(lab, "resume")
        session = self.new(rbox, lab, "Remember the word xylophone. [[say: Ready.]]")
        self.idle(rbox)
        os.kill(session["pid"], signal.SIGKILL)
        rbox.until(lambda: rbox.session("s")["status"] == "failed", "its death to be seen")
        rbox.ao("restore", "s")
        rbox.until(lambda: self.look(rbox, "s")["activity"] == "idle", "the restored agent", lab.start_within)
        rbox.ao("send", "s", "after the crash [[say: Here.]]")
        rbox.until(lambda: model.count("after the crash") == 1, "the message after the crash", 40)
        last = next(one for one in reversed(model.requests) if "after the crash" in one.user)
        assert any("xylophone" in text for text in last.users), "it is another conversation"


class Driven(Basic):
    """All of it."""

    def test_long_and_hostile_text_arrives_as_text(self, rbox: Sandbox, lab: Lab, model: ScriptedModel) -> None:
        self.new(rbox, lab, "Begin. [[say: Ready.]]")
        self.idle(rbox)
        for text in (HOSTILE, LONG):
            rbox.request("POST", "/api/sessions/s/message", {"content": text})
            wanted = squeezed(clean_text(text))
            rbox.until(
                lambda wanted=wanted: any(wanted in squeezed(unfolded(one.text)) for one in model.arrivals()),  # type: ignore[misc]
                f"{text[:20]!r} to arrive whole",
                40,
            )
            self.idle(rbox)

        def states() -> list[str]:
            return [one["state"] for one in rbox.request("GET", "/api/sessions/s/messages")["messages"]]

        rbox.until(lambda: states()[-2:] == ["acknowledged", "acknowledged"], "both to be acknowledged", 10)

    def test_a_message_to_a_busy_agent_is_taken_up_once(self, rbox: Sandbox, lab: Lab, model: ScriptedModel) -> None:
        self.need(lab, "queue")
        self.new(rbox, lab, "Begin. [[hang: work]] [[say: First done.]]")
        model.wait_for(lambda one: one.held == "work", 40)
        rbox.until(lambda: self.look(rbox, "s")["activity"] == "active", "its turn")
        sent = rbox.json("send", "s", "while busy [[say: Second done.]]")
        path = f"/api/sessions/s/messages/{sent['messageId']}"
        rbox.until(lambda: rbox.request("GET", path)["state"] in ("delivered", "acknowledged"), "its delivery")
        model.release("work")
        rbox.until(lambda: rbox.request("GET", path)["state"] == "acknowledged", "its acknowledgement", 40)
        rbox.until(lambda: model.count("while busy") == 1, "the message", 40)
        self.idle(rbox)
        assert model.count("while busy") == 1

    def test_state_follows_the_turn(self, rbox: Sandbox, lab: Lab, model: ScriptedModel) -> None:
        self.new(rbox, lab, "Begin. [[hang: a]] [[say: Done.]]")
        model.wait_for(lambda one: one.held == "a", 40)
        rbox.until(lambda: self.look(rbox, "s")["activity"] == "active", "active", 2)
        model.release("a")
        rbox.until(lambda: self.look(rbox, "s")["activity"] == "idle", "idle", 3)
        rbox.ao("send", "s", "Which? [[say: Which database shall I use?]]")
        rbox.until(lambda: self.look(rbox, "s")["status"] == "needs_input", "its question", 20)
        assert "Which database" in rbox.session("s")["waitingFor"]

    @pytest.mark.parametrize("permissions", ["default"])
    @pytest.mark.parametrize("decision", ["allow", "always", "deny"])
    def test_a_permission_dialog(self, rbox: Sandbox, lab: Lab, model: ScriptedModel, decision: str) -> None:
        self.need(lab, "dialog")
        self.new(rbox, lab, f"Do it. {lab.ask('touch asked.txt')} [[say: Done.]]")
        rbox.until(lambda: self.look(rbox, "s")["status"] == "blocked", "the dialog", 40)
        asked = rbox.json("answer", "s")["questions"][0]["permission"]
        assert asked and "touch asked.txt" in asked["command"]
        held = rbox.json("send", "s", "meanwhile [[say: Later.]]")
        path = f"/api/sessions/s/messages/{held['messageId']}"
        rbox.until(lambda: rbox.request("GET", path)["state"] == "held", "the message to be held")
        rbox.ao("answer", "s", f"--{decision}")
        made = Path(rbox.session("s")["workspacePath"]) / "asked.txt"
        if decision == "deny":
            rbox.until(lambda: self.look(rbox, "s")["status"] != "blocked", "the denial", 20)
            assert not made.exists()
        else:
            rbox.until(made.exists, "what it was allowed to do", 20)
        rbox.until(lambda: rbox.request("GET", path)["state"] == "acknowledged", "the held message", 40)
        rbox.until(lambda: model.count("meanwhile") == 1, "the held message at the model", 20)
        assert made.exists() == (decision != "deny")

    def test_escape_is_an_interruption_not_an_end(self, rbox: Sandbox, lab: Lab, model: ScriptedModel) -> None:
        self.need(lab, "escape")
        self.new(rbox, lab, "Begin. [[hang: a]] [[say: Done.]]")
        model.wait_for(lambda one: one.held == "a", 40)
        rbox.until(lambda: self.look(rbox, "s")["activity"] == "active", "its turn")
        keys = {"aider": ("C-c",), "copilot": ("C-c",), "goose": ("C-c",), "opencode": ("Escape", "Escape")}.get(
            lab.agent, ("Escape",)
        )
        for key in keys:
            self.press(rbox, rbox.session("s"), key)
            time.sleep(1.0)  # two at once would be another key
        rbox.until(lambda: self.look(rbox, "s")["activity"] == "interrupted", "the interruption", 10)
        assert rbox.session("s")["status"] == "interrupted"
        model.release("a")
        rbox.ao("send", "s", "go on [[say: Going on.]]")
        rbox.until(lambda: model.count("go on") == 1, "the next message", 20)
        self.idle(rbox)

    def test_interrupt_stops_the_turn_and_then_says_it(self, rbox: Sandbox, lab: Lab, model: ScriptedModel) -> None:
        self.need(lab, "escape")
        self.new(rbox, lab, "Begin. [[hang: a]] [[say: Done.]]")
        held = model.wait_for(lambda one: one.held == "a", 40)
        rbox.until(lambda: self.look(rbox, "s")["activity"] == "active", "its turn")
        rbox.ao("send", "s", "instead do this [[say: Doing that.]]", "--interrupt")
        rbox.until(lambda: model.count("instead do this") == 1, "the message", 30)
        assert held.outcome in ("left", "open") and held.reply.text != ""
        self.idle(rbox)

    @pytest.mark.parametrize("status", [429, 500, 529])
    def test_an_api_error_is_shown_and_got_over(
        self, rbox: Sandbox, lab: Lab, model: ScriptedModel, status: int
    ) -> None:
        self.new(rbox, lab, "Begin. [[say: Ready.]]")
        self.idle(rbox)
        rbox.ao("send", "s", f"try [[error: {status} x{lab.failures}]] [[say: Worked at last.]]")
        if status in lab.gives_up:
            rbox.until(lambda: self.look(rbox, "s")["activity"] == "interrupted", "the failed turn", 30)
            assert str(status) in rbox.session("s")["why"]
            rbox.ao("send", "s", "once more [[say: Worked at last.]]")
        elif "retrying" in lab.can:
            rbox.until(lambda: self.look(rbox, "s")["activity"] == "retrying", "the retries to be shown", 30)
            assert rbox.session("s")["status"] == "working"
        rbox.until(lambda: model.count("try") >= 1, "the message", 40)
        rbox.until(lambda: self.look(rbox, "s")["activity"] == "idle", "the end of the turn", 90)

    def test_a_usage_limit_is_shown_with_its_reset(self, rbox: Sandbox, lab: Lab) -> None:
        self.need(lab, "limit")
        self.new(rbox, lab, "Begin. [[say: Ready.]]")
        self.idle(rbox)
        rbox.ao("send", "s", "more [[limit: 3600]]")
        rbox.until(lambda: self.look(rbox, "s")["status"] == "limited", "the limit", 40)
        told = next(one for one in rbox.events("s") if one["type"] == "agent-limit")
        assert told["data"]["resetsAt"]

    def test_two_at_once_are_not_mixed_up(self, rbox: Sandbox, lab: Lab, model: ScriptedModel) -> None:
        for name in ("a", "b"):
            rbox.ao("new", lab.commit(f"{name}.txt", name), "--name", name, "--no-wait")
        for name, other in (("a", "b"), ("b", "a")):
            rbox.until(lambda name=name: self.look(rbox, name)["pr"], f"{name}'s commit", 120)  # type: ignore[misc]
            session = self.idle(rbox, name)
            files = rbox.git("ls-tree", "--name-only", session["branch"]).split()
            assert f"{name}.txt" in files and f"{other}.txt" not in files
        assert model.count("a.txt") == 1 and model.count("b.txt") == 1

    def test_usage_is_counted(self, rbox: Sandbox, lab: Lab) -> None:
        self.need(lab, "usage")
        self.new(rbox, lab, "Begin. [[usage: input=1000 output=50]] [[say: Ready.]]")
        self.idle(rbox)
        used = rbox.until(lambda: (now := rbox.session("s")["usage"])["output"] and now, "its usage", 10)
        assert used["output"] >= 50 and used["input"] > 0

    def test_its_plan_is_shown_as_progress(self, rbox: Sandbox, lab: Lab) -> None:
        self.need(lab, "todo")
        self.new(rbox, lab, "Plan. [[todo: x one; > two; - three]] [[say: Planned.]]")

        def progress() -> tuple[int, int]:
            now = rbox.session("s")["progress"]
            return now["done"], now["total"]

        rbox.until(lambda: progress() == (1, 3), "its plan", 40)

    def test_it_knows_the_rules(self, rbox: Sandbox, lab: Lab, model: ScriptedModel) -> None:
        self.need(lab, "system")
        self.new(rbox, lab, "Begin. [[say: Ready.]]")
        self.idle(rbox)
        assert any("Work only in this folder" in str(one.body) for one in model.requests)

    def test_a_restart_of_the_daemon_in_mid_turn_loses_and_doubles_nothing(
        self, rbox: Sandbox, lab: Lab, model: ScriptedModel
    ) -> None:
        self.new(rbox, lab, "Begin. [[hang: a]] [[say: Done at last.]]")
        model.wait_for(lambda one: one.held == "a", 40)
        rbox.stop(signal.SIGKILL)
        model.release("a")
        rbox.start()
        self.idle(rbox)
        rbox.ao("send", "s", "and now [[say: Now.]]")
        rbox.until(lambda: model.count("and now") == 1, "the next message", 30)
        self.idle(rbox)
        rbox.until(lambda: self.turns(rbox) >= 2, "its second turn", 10)
        assert self.turns(rbox) == 2


class HeadlessDriven(Basic):
    """The same agent, one turn a message."""

    @pytest.fixture
    def mode(self) -> str:
        return "headless"

    def test_usage_and_conversation_come_from_the_structured_output(
        self, rbox: Sandbox, lab: Lab, model: ScriptedModel
    ) -> None:
        self.new(rbox, lab, "Remember xylophone. [[usage: input=1000 output=50]] [[say: First answer.]]")
        self.idle(rbox)
        assert rbox.session("s")["usage"]["output"] >= 50
        assert "First answer." in rbox.ao("logs", "s").stdout
        rbox.ao("send", "s", "second [[say: Second answer.]]", "--wait")
        rbox.until(lambda: any("second" in one.user for one in model.requests), "the second turn", 40)
        self.idle(rbox)
        assert rbox.ao("logs", "s").stdout.count("Second answer.") == 2, "the message, and the answer"
        last = next(one for one in reversed(model.requests) if "second" in one.user)
        assert any("xylophone" in text for text in last.users), "it is another conversation"
        output = rbox.session("s")["usage"]["output"]
        assert output + 50 >= 100, f"usage of two turns: {output}"
