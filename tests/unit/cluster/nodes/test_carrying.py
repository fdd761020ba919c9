"""A conversation goes to the next machine, if the agent says where it is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_orchestrator.base.home import Home
from agent_orchestrator.cluster.nodes.conversations import Carrying
from agent_orchestrator.core.facts import Launch, SessionFacts
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


def carrying(folder: Path, agent: object, machines: dict[str, Machine]) -> Carrying:
    plugins = cast(Any, SimpleNamespace(agent_of=lambda _facts: agent))
    homes = {"n1": "/home/one", "n2": "/home/two"}
    return Carrying(
        Home(folder),
        plugins,
        lambda node: cast(Any, SimpleNamespace(remote=machines[node])),
        lambda facts: {"HOME": homes[facts.node or ""]},
    )


def on(node: str, conversation: str | None = "c1") -> SessionFacts:
    launch = Launch(1, {"address": {"node": "n1"}}, 1000.0)
    return replace(begun(), node=node, conversation=conversation, launch=launch)


async def test_it_goes_along_and_never_replaces_what_is_there(tmp_path: Path) -> None:
    machines = {"n1": Machine(), "n2": Machine()}
    machines["n1"].files[Path("/home/one/w/c1.jsonl")] = b"hello\n"
    made = carrying(tmp_path, Talkative(), machines)
    assert not await made.bring(on("n2"))  # nothing was saved yet
    await made.save(on("n1"))
    assert await made.bring(on("n2"))
    assert machines["n2"].files == {Path("/home/two/w/c1.jsonl"): b"hello\n"}
    machines["n2"].files[Path("/home/two/w/c1.jsonl")] = b"hello\nand more\n"
    assert await made.bring(on("n2"))
    assert machines["n2"].files[Path("/home/two/w/c1.jsonl")] == b"hello\nand more\n"


async def test_one_that_keeps_its_conversations_to_itself_begins_anew_elsewhere(tmp_path: Path) -> None:
    made = carrying(tmp_path, object(), {"n1": Machine(), "n2": Machine()})
    await made.save(on("n1"))
    assert await made.bring(on("n1")) and not await made.bring(on("n2"))
    assert await made.bring(on("n2", None)) and await made.bring(replace(on("n2"), launch=None))
