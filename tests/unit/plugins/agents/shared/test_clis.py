"""Functions shared by the plugins of agent CLIs."""

from __future__ import annotations

import json
from pathlib import Path

from agent_orchestrator.plugins.agents.shared import agent_cli
from agent_orchestrator.protocols import AgentContext


def context(**more: object) -> AgentContext:
    fields = {"prompt": "Fix it", "task_file": Path("/t/task.md"), "private": Path("/t"), **more}
    return AgentContext("s", "p", Path("/w"), "b", "main", **fields)  # type: ignore[arg-type]


def test_the_first_message_has_the_rules_before_it() -> None:
    text = agent_cli.first_message(context(system="Work here."))
    assert text == "<rules>\nWork here.\n</rules>\n\nFix it"
    assert agent_cli.without_rules(text) == "Fix it"
    assert agent_cli.without_rules("Say <rules>") == "Say <rules>"
    assert agent_cli.first_message(context(prompt="", system="Work here.")) == ""


def test_a_very_long_message_is_read_from_a_file() -> None:
    assert "/t/task.md" in agent_cli.shorten_to_argument("ä" * 60_000, context())


def test_a_users_file_keeps_what_is_in_it(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text('// top\n{"mine": 1}')
    real.chmod(0o640)
    link.symlink_to(real)

    def add(data: dict[str, object]) -> bool:
        data["ours"] = 2
        return True

    agent_cli.merge_json(link, add, tmp_path / "cli")
    assert link.is_symlink() and real.stat().st_mode & 0o777 == 0o640
    assert real.read_text().startswith("// top\n")
    assert json.loads(real.read_text()[7:]) == {"mine": 1, "ours": 2}
    agent_cli.merge_json(tmp_path / "new/x.json", add, tmp_path / "new")
    assert json.loads((tmp_path / "new/x.json").read_text()) == {"ours": 2}
    real.write_text('{"mine": 1, /* inside */ "x": 2}')
    agent_cli.merge_json(link, add, tmp_path / "cli")
    assert real.read_text() == '{"mine": 1, /* inside */ "x": 2}', "what we cannot read we do not write"
    assert list(tmp_path.glob(".*")) == []


def test_only_the_projects_very_own_commands_need_no_question() -> None:
    assert agent_cli.own_commands(context(permissions="auto-edit", commands=("npm ci && npm test",))) == (
        "npm ci && npm test",
    )
    assert agent_cli.own_commands(context(permissions="default", commands=("npm test",))) == ()
