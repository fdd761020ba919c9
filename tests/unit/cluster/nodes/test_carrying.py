"""A conversation goes to the next machine, if the agent says where it is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_orchestrator.cluster.nodes.conversations import ConversationCopier
from agent_orchestrator.core.facts import Launch, SessionFacts
from agent_orchestrator.testing.plugins import MemoryAgent
from tests.parts import make_core
from tests.unit.core.test_facts_properties import begun

pytestmark = pytest.mark.anyio


class Machine:
    """A node's files."""

    def __init__(self) -> None:
        self.files: dict[Path, bytes] = {}

    async def read(self, path: Path) -> bytes | None:
        return self.files.get(path)

    async def present(self, path: Path) -> bool:
        return path in self.files

    async def write(self, path: Path, data: bytes) -> None:
        self.files[path] = data


class Talkative:
    def conversation_files(self, env: dict[str, str], workspace: Path, conversation: str) -> tuple[Path, ...]:
        return (Path(env["HOME"], workspace.name, f"{conversation}.jsonl"),)


def carrying(folder: Path, agent: object, machines: dict[str, Machine]) -> ConversationCopier:
    plugins = cast(Any, SimpleNamespace(agent_of=lambda _facts: agent))
    homes = {"n1": "/home/one", "n2": "/home/two"}
    nodes = SimpleNamespace(site=lambda node: SimpleNamespace(remote=machines[node]))
    specs = SimpleNamespace(environment=lambda facts: {"HOME": homes[facts.node or ""]})
    return ConversationCopier(replace(make_core(folder), plugins=plugins), cast(Any, nodes), cast(Any, specs))


def on(node: str, conversation: str | None = "c1") -> SessionFacts:
    launch = Launch(1, {"address": {"node": "n1"}}, 1000.0)
    return replace(begun(), node=node, conversation=conversation, launch=launch)


async def test_it_goes_along_and_never_replaces_what_is_there(tmp_path: Path) -> None:
    machines = {"n1": Machine(), "n2": Machine()}
    machines["n1"].files[Path("/home/one/w/c1.jsonl")] = b"hello\n"
    made = carrying(tmp_path, Talkative(), machines)
    assert not await made.restore(on("n2"))  # nothing was saved yet
    await made.save(on("n1"))
    assert await made.restore(on("n2"))
    assert machines["n2"].files == {Path("/home/two/w/c1.jsonl"): b"hello\n"}
    machines["n2"].files[Path("/home/two/w/c1.jsonl")] = b"hello\nand more\n"
    assert await made.restore(on("n2"))
    assert machines["n2"].files[Path("/home/two/w/c1.jsonl")] == b"hello\nand more\n"


async def test_one_that_keeps_its_conversations_to_itself_begins_anew_elsewhere(tmp_path: Path) -> None:
    made = carrying(tmp_path, MemoryAgent(), {"n1": Machine(), "n2": Machine()})
    await made.save(on("n1"))
    assert await made.restore(on("n1")) and not await made.restore(on("n2"))
    assert await made.restore(on("n2", None)) and await made.restore(replace(on("n2"), launch=None))
