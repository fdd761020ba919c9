"""What a launch was begun with is found again, whole or not at all, and only by the same launch."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from agent_orchestrator.protocols import AgentLaunch
from agent_orchestrator.services.launches import Begun, keep, kept


def begun(conversation: str = "c-1", *, stdin: Path | None = None) -> Begun:
    plan = AgentLaunch(
        ("cli", "--task", "two\nlines \udcff"),
        MappingProxyType({"NAME": "value"}),
        stdin=stdin,
        conversation=conversation,
        memo=MappingProxyType({"port": "4711"}),
    )
    return Begun(plan, "two\nlines", "m-1")


def test_a_launch_that_is_begun_again_is_the_same_one(tmp_path: Path) -> None:
    for wanted in (begun(), begun(stdin=tmp_path / "task.md")):
        keep(tmp_path, 2, 1, wanted)
        assert kept(tmp_path, 2, 1) == wanted


def test_another_launch_is_another_one(tmp_path: Path) -> None:
    keep(tmp_path, 1, 1, begun("c-1"))
    assert kept(tmp_path, 2, 1) is None and kept(tmp_path, 1, 2) is None
    keep(tmp_path, 2, 1, begun("c-2"))
    assert [path.name for path in tmp_path.iterdir()] == ["begun.2.1.json"]


def test_what_was_not_written_whole_counts_as_not_begun(tmp_path: Path) -> None:
    keep(tmp_path, 1, 1, begun())
    file = tmp_path / "begun.1.1.json"
    assert file.stat().st_mode & 0o777 == 0o600
    for text in ("", file.read_text()[:40], "{}", '{"plan": {"argv": ["x"]}}'):
        file.write_text(text)
        assert kept(tmp_path, 1, 1) is None
