"""Copying an agent's conversation to the next node."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_orchestrator.cluster.daemon.conversations import ConversationCopier
from agent_orchestrator.core.facts import Launch, SessionFacts
from agent_orchestrator.testing.plugins import MemoryAgent
from tests.parts import make_core
from tests.unit.core.test_facts_properties import begun

pytestmark = pytest.mark.anyio


class Machine:
    """The files of a node."""

    def __init__(self) -> None:
        self.files: dict[Path, bytes] = {}

    async def read(self, path: Path) -> bytes | None:
        return self.files.get(path)

    async def path_exists(self, path: Path) -> bool:
        return path in self.files

    async def write(self, path: Path, data: bytes) -> None:
        self.files[path] = data


class AgentWithConversations:
    def conversation_files(self, env: dict[str, str], workspace: Path, conversation: str) -> tuple[Path, ...]:
        return (Path(env["HOME"], workspace.name, f"{conversation}.jsonl"),)


def make_copier(folder: Path, agent: object, machines: dict[str, Machine]) -> ConversationCopier:
    plugins = cast(Any, SimpleNamespace(agent_of=lambda _facts: agent))
    homes = {"n1": "/home/one", "n2": "/home/two"}
    nodes = SimpleNamespace(site=lambda node: SimpleNamespace(remote=machines[node]))
    specs = SimpleNamespace(environment=lambda facts: {"HOME": homes[facts.node or ""]})
    return ConversationCopier(replace(make_core(folder), plugins=plugins), cast(Any, nodes), cast(Any, specs))


def facts_on(node: str, conversation: str | None = "c1") -> SessionFacts:
    launch = Launch(1, {"address": {"node": "n1"}}, 1000.0)
    return replace(begun(), node=node, conversation=conversation, launch=launch)


async def test_a_conversation_is_copied_and_replaces_no_existing_one(tmp_path: Path) -> None:
    machines = {"n1": Machine(), "n2": Machine()}
    machines["n1"].files[Path("/home/one/w/c1.jsonl")] = b"hello\n"
    copier = make_copier(tmp_path, AgentWithConversations(), machines)
    assert not await copier.restore(facts_on("n2"))  # nothing was saved yet
    await copier.save(facts_on("n1"))
    assert await copier.restore(facts_on("n2"))
    assert machines["n2"].files == {Path("/home/two/w/c1.jsonl"): b"hello\n"}
    machines["n2"].files[Path("/home/two/w/c1.jsonl")] = b"hello\nand more\n"
    assert await copier.restore(facts_on("n2"))
    assert machines["n2"].files[Path("/home/two/w/c1.jsonl")] == b"hello\nand more\n"


async def test_without_conversation_files_an_agent_starts_over_on_another_node(tmp_path: Path) -> None:
    copier = make_copier(tmp_path, MemoryAgent(), {"n1": Machine(), "n2": Machine()})
    await copier.save(facts_on("n1"))
    assert await copier.restore(facts_on("n1")) and not await copier.restore(facts_on("n2"))
    assert await copier.restore(facts_on("n2", None)) and await copier.restore(replace(facts_on("n2"), launch=None))
