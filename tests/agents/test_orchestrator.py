"""A real coordinating agent on the scripted model: it starts and steers a worker by our MCP tools, and is told by a digest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_orchestrator.testing.model import ScriptedModel
from agent_orchestrator.testing.sandbox import Sandbox
from tests.agents.labs import Lab


class Coordinated:
    agent_name: str
    prefix = "mcp__ao__"

    @pytest.fixture
    def agent(self) -> str:
        return self.agent_name

    def tool(self, name: str, **arguments: Any) -> str:
        """A directive that has the model call one of our tools; the brackets of directives for others are escaped in it."""
        inside = json.dumps(arguments).replace("[[", r"\u005b\u005b").replace("]]", r"\u005d\u005d")
        return f"[[tool: {self.prefix}{name} {inside}]]"

    def test_it_starts_and_steers_a_worker(self, rbox: Sandbox, lab: Lab, model: ScriptedModel) -> None:
        file = rbox.repo / "agent-orchestrator.yaml"
        settings = json.loads(file.read_text())
        file.write_text(json.dumps({**settings, "orchestrator": {"coordinator": {"digest": "1s"}}}))
        work = lab.commit("made.txt", "hello", "The file is made.")
        rbox.ao(
            "orchestrator",
            f"Have a file made. {self.tool('spawn_session', prompt=work, title='Make it')} [[say: Started.]]",
        )
        rbox.until(lambda: "app-make-it" in {one["id"] for one in rbox.sessions()}, "the worker", 2 * lab.start_within)
        made = rbox.session("app-make-it")
        assert made["kind"] == "worker"
        rbox.until(lambda: rbox.session("app-make-it")["pr"], "its commit", 90)
        rbox.until(lambda: model.count("News from app") > 0, "the digest to reach the coordinator's model", 60)
        told = next(one.user for one in model.requests if "News from app" in one.user)
        assert "app-make-it" in told
        rbox.until(lambda: rbox.session("app-coordinator")["activity"] == "idle", "it to rest", 60)
        more = self.tool("send_message", session="app-make-it", text="go on with the xylophone [[say: I do.]]")
        rbox.ao("orchestrator", f"Steer it. {more} [[say: Steered.]]")
        rbox.until(
            lambda: any(one.user.strip().startswith("go on with the xylophone") for one in model.requests),
            "the worker to hear it",
            60,
        )
        sent = [one for one in rbox.events("app-make-it") if one["type"] == "message-queued"]
        assert sent[-1]["data"]["sender"] == "session app-coordinator"

    def test_it_changes_nothing_and_its_token_is_written_nowhere(
        self, rbox: Sandbox, lab: Lab, model: ScriptedModel
    ) -> None:
        rbox.ao("orchestrator", "Try. [[write: forbidden.txt|no]] [[say: Tried.]]")
        rbox.until(lambda: model.count("Try.") > 0, "its turn", 2 * lab.start_within)
        rbox.until(
            lambda: rbox.session("app-coordinator")["activity"] in ("idle", "blocked"), "the end of its turn", 60
        )
        mine = rbox.session("app-coordinator")
        assert rbox.git("status", "--porcelain", cwd=rbox.folder / "ao" / "worktrees" / "app" / "coordinator") == ""
        token = json.loads(rbox.ao("api", "GET", f"/sessions/{mine['id']}/environment").stdout)["env"]["AO_TOKEN"]
        private = rbox.home.session(mine["id"])
        assert not [file for file in private.rglob("*") if file.is_file() and token.encode() in file.read_bytes()]


class Secured(Coordinated):
    """The daemon serves by TLS, with a certificate that no agent knows."""

    @pytest.fixture
    def rbox(self, rbox: Sandbox) -> Sandbox:
        rbox.stop()
        rbox.start("--tls")
        return rbox


class TestClaudeCode(Coordinated):
    agent_name = "claude-code"


class TestClaudeCodeSecured(Secured):
    agent_name = "claude-code"


class TestCodex(Coordinated):
    agent_name = "codex"


class TestCodexSecured(Secured):
    agent_name = "codex"


class TestOpencode(Coordinated):
    agent_name = "opencode"
    prefix = "ao_"
