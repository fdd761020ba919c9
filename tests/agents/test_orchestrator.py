"""A real coordinating agent on the scripted model: it starts a worker and sends it messages with our MCP tools, and gets a digest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_orchestrator.testing.model import ScriptedModel
from agent_orchestrator.testing.sandbox import Sandbox
from tests.agents.labs import AgentLab


class CoordinatorTests:
    agent_name: str
    prefix = "mcp__ao__"

    @pytest.fixture
    def agent(self) -> str:
        return self.agent_name

    def tool(self, name: str, **arguments: Any) -> str:
        """Return a directive that makes the model call one of our tools, with the brackets of inner directives escaped."""
        inside = json.dumps(arguments).replace("[[", r"\u005b\u005b").replace("]]", r"\u005d\u005d")
        return f"[[tool: {self.prefix}{name} {inside}]]"

    def test_the_coordinator_starts_and_messages_a_worker(
        self, rbox: Sandbox, lab: AgentLab, model: ScriptedModel
    ) -> None:
        file = rbox.repo / "agent-orchestrator.yaml"
        settings = json.loads(file.read_text())
        file.write_text(json.dumps({**settings, "orchestrator": {"coordinator": {"digest": "1s"}}}))
        work = lab.commit("made.txt", "hello", "The file is made.")
        rbox.ao(
            "orchestrator",
            f"Have a file made. {self.tool('spawn_session', prompt=work, title='Make it')} [[say: Started.]]",
        )
        rbox.wait_until(
            lambda: "app-make-it" in {session["id"] for session in rbox.sessions()}, "the worker", 2 * lab.start_timeout
        )
        worker = rbox.session("app-make-it")
        assert worker["kind"] == "worker"
        rbox.wait_until(lambda: rbox.session("app-make-it")["pr"], "its commit", 90)
        rbox.wait_until(lambda: model.count("News from app") > 0, "the digest to reach the coordinator's model", 60)
        digest_message = next(
            request.last_user_message for request in model.requests if "News from app" in request.last_user_message
        )
        assert "app-make-it" in digest_message
        rbox.wait_until(lambda: rbox.session("app-coordinator")["activity"] == "idle", "it to be idle", 60)
        steering = self.tool("send_message", session="app-make-it", text="go on with the xylophone [[say: I do.]]")
        rbox.ao("orchestrator", f"Steer it. {steering} [[say: Steered.]]")
        rbox.wait_until(
            lambda: any(
                request.last_user_message.strip().startswith("go on with the xylophone") for request in model.requests
            ),
            "the message at the worker's model",
            60,
        )
        queued_messages = [event for event in rbox.events("app-make-it") if event["type"] == "message-queued"]
        assert queued_messages[-1]["data"]["sender"] == "session app-coordinator"

    def test_the_coordinator_changes_no_files_and_its_token_is_in_no_file(
        self, rbox: Sandbox, lab: AgentLab, model: ScriptedModel
    ) -> None:
        rbox.ao("orchestrator", "Try. [[write: forbidden.txt|no]] [[say: Tried.]]")
        rbox.wait_until(lambda: model.count("Try.") > 0, "its turn", 2 * lab.start_timeout)
        rbox.wait_until(
            lambda: rbox.session("app-coordinator")["activity"] in ("idle", "blocked"), "the end of its turn", 60
        )
        coordinator = rbox.session("app-coordinator")
        assert rbox.git("status", "--porcelain", cwd=rbox.folder / "ao" / "worktrees" / "app" / "coordinator") == ""
        token = json.loads(rbox.ao("api", "GET", f"/sessions/{coordinator['id']}/environment").stdout)["env"][
            "AO_TOKEN"
        ]
        session_folder = rbox.home.session(coordinator["id"])
        assert not [
            file for file in session_folder.rglob("*") if file.is_file() and token.encode() in file.read_bytes()
        ]


class TLSCoordinatorTests(CoordinatorTests):
    """The daemon serves with TLS and a self-signed certificate."""

    @pytest.fixture
    def rbox(self, rbox: Sandbox) -> Sandbox:
        rbox.stop()
        rbox.start("--tls")
        return rbox


class TestClaudeCode(CoordinatorTests):
    agent_name = "claude-code"


class TestClaudeCodeSecured(TLSCoordinatorTests):
    agent_name = "claude-code"


class TestCodex(CoordinatorTests):
    agent_name = "codex"


class TestCodexSecured(TLSCoordinatorTests):
    agent_name = "codex"


class TestOpencode(CoordinatorTests):
    agent_name = "opencode"
    prefix = "ao_"
