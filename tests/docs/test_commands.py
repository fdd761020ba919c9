"""The documentation of the command line is complete and correct."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from agent_orchestrator.cli.app import COMMANDS
from agent_orchestrator.testing.sandbox import Sandbox
from tests.docs.commands import ShownCommand, parse_error, shown_commands, with_session
from tests.docs.pages import HANDWRITTEN_PAGES, page_path


@pytest.mark.parametrize("page", HANDWRITTEN_PAGES, ids=page_path)
def test_shown_commands_can_be_parsed(page: Path) -> None:
    refused = [
        (str(command), reason)
        for command in shown_commands(page)
        if (reason := parse_error(command.words, command.in_block))
    ]
    assert refused == []


def test_every_command_is_documented_by_hand() -> None:
    """Besides the generated reference, each command is in a sentence or block."""
    documented = {command.words[0] for page in HANDWRITTEN_PAGES for command in shown_commands(page) if command.words}
    assert {name for name, entry in COMMANDS.items() if not entry.alias_of} <= documented


# -- run them ----------------------------------------------------------------------------------------------------------

SAFE = """
add-project *; agents*; api GET *; api POST *; audit*; backlog*; checks S; completion *; config get *; config set *; config validate*;
config schema; config-help; conflicts*; create *; dashboard --no-open; diff S*; events*; fix --list; issue new *; issues*; logs*; new *;
nodes*; orchestrator --stop; path S; permissions; plugins*; projects*; prune --dry-run; queue*; reactions *; remove-project *; review S;
send S *; sh S *; status*; token *; trust*; usage*; why S
"""
NOT_HERE = {
    "a person sits at it": "attach S; open S *; dashboard; top*; orchestrator --attach; plan P1 --edit; answer S*; * -f; * -f *",
    "it is about the network, the machine, a model": "start*; secret *; orchestrator; orchestrator [!-]*; plan *; notify *; nodes add *",
    "there is a test of its own": "fix; fix [!-]*; fix --[!l]*; import *; doctor*; merge S; restore S; stop *; review S --*; shutdown",
    "it is not here": "new --agent claude-code *; new 123; new * --issue 123; "
    "audit --verify --kept *; events --replay *; usage --release *; token revoke *",
}


def matches(words: tuple[str, ...], patterns: str) -> bool:
    return any(fnmatchcase(" ".join(words), pattern.strip()) for pattern in patterns.split(";"))


def left_out(words: tuple[str, ...]) -> bool:
    return any(matches(words, patterns) for patterns in NOT_HERE.values())


def typed() -> dict[tuple[str, ...], ShownCommand]:
    """Return each command that a block shows, with sessions called `S`; the quickstart has a separate test."""
    commands: dict[tuple[str, ...], ShownCommand] = {}
    for page in HANDWRITTEN_PAGES:
        for command in shown_commands(page) if page.name != "quickstart.md" else ():
            if command.in_block and command.words:
                commands.setdefault(with_session(command.words), command)
    return commands


def test_every_command_in_a_block_is_run_or_excluded() -> None:
    unassigned = [
        str(command) for words, command in typed().items() if not matches(words, SAFE) and not left_out(words)
    ]
    assert unassigned == [], "add it to SAFE, or to NOT_HERE with the reason"


def test_commands_in_blocks_work(tmp_path: Path) -> None:
    with Sandbox(tmp_path) as box:
        box.repository("my-app")
        other = box.user_home / "path" / "to" / "project-two"
        other.mkdir(parents=True)
        box.git("init", "-q", cwd=other)
        box.git("commit", "-q", "--allow-empty", "-m", "start", cwd=other)
        box.start()
        box.ao("issue", "new", "The first one, which others come after")
        box.ao("new", "--name", "worker", "[[edit: a.txt|x]] [[commit: a]] [[done: ok]]")
        box.wait_until(lambda: box.session("worker")["status"] == "review_pending", "its change", 120)
        failed = []
        for words, command in typed().items():
            if matches(words, SAFE) and not left_out(words):
                argv = [word.replace("~", str(box.user_home)) if word.startswith("~") else word for word in words]
                argv = [re.sub(r"(^|/)S(/|$)", r"\1worker\2", word) for word in argv]
                done = box.ao(*argv, check=False)
                if done.returncode:
                    failed.append(f"{command}\n  {done.stderr or done.stdout}")
        assert not failed, "\n".join(failed)
