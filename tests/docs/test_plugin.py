"""The example plugin of the architecture page passes the contract suite and works in a session."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.config.projects.plugin_registry import PluginRegistry
from agent_orchestrator.protocols import Agent
from agent_orchestrator.testing.contracts.agent import AgentContract
from agent_orchestrator.testing.sandbox import Sandbox
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "architecture.md"
CONFIG = "defaults: {runtime: process}\n"


def example(text: str, language: str = "python") -> str:
    """Return the page's block that contains a text."""
    return next(block.text for block in blocks(PAGE, language) if text in block.text)


class TestWordCount(AgentContract):
    @pytest.fixture
    def agent(self, tmp_path_factory: pytest.TempPathFactory) -> Agent:
        return make(tmp_path_factory.mktemp("plugin"), "sh")

    @pytest.fixture
    def absent(self, tmp_path_factory: pytest.TempPathFactory) -> Agent:
        return make(tmp_path_factory.mktemp("plugin"), "no-such-shell")


def make(folder: Path, shell: str) -> Agent:
    (folder / "word_count.py").write_text(example("class WordCount"))
    agent = PluginRegistry([{"path": "word_count.py"}], folder).create(
        "agent", "word-count", {"shell": shell}, LocalHost()
    )
    assert isinstance(agent, Agent)
    return agent


def test_the_example_plugin_works_in_a_session(tmp_path: Path) -> None:
    with Sandbox(tmp_path) as box:
        repo = box.repository(config=CONFIG + example("word_count", "yaml"))
        (repo / "word_count.py").write_text(example("class WordCount"))
        box.start()
        box.ao("new", "--agent", "word-count", "--name", "count", "three little words")
        box.wait_until(lambda: box.session("count")["activity"] == "exited", "the agent to end")
        box.wait_until(lambda: box.session("count")["status"] == "review_pending", "its change to be ready")
        assert box.git("show", "feature/count:words.txt").strip() == "3"


def test_the_example_suite_is_the_contract_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "word_count.py").write_text(example("class WordCount"))
    monkeypatch.syspath_prepend(str(tmp_path))
    namespace: dict[str, object] = {"__name__": "test_word_count"}
    exec(compile(example("class TestWordCount"), str(PAGE), "exec"), namespace)
    monkeypatch.delitem(sys.modules, "word_count")
    suite = namespace["TestWordCount"]
    assert isinstance(suite, type) and issubclass(suite, AgentContract)
