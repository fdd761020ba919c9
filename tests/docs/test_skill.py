"""The skill for agents is correct: every named command and option exists, and its format is valid."""

from __future__ import annotations

import re
import shlex

import click
import pytest
from ruamel.yaml import YAML

from agent_orchestrator.cli.app import COMMANDS, cli
from agent_orchestrator.cli.setup.skill import NAME, skill_text
from tests.docs.pages import PACKAGE, ROOT

_HEAD, _BODY = re.fullmatch(r"---\n(.*?\n)---\n(.*)", skill_text(), re.DOTALL).groups()  # type: ignore[union-attr]


def _named() -> list[str]:
    """Return every command line, in blocks and between backticks."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", _BODY, re.MULTILINE | re.DOTALL)
    lines = [line.partition("  #")[0] for block in blocks for line in block.splitlines()]
    prose = re.sub(r"^```.*?^```$", "", _BODY, flags=re.MULTILINE | re.DOTALL)
    return [line for line in (*lines, *re.findall(r"`([^`]+)`", prose)) if line.startswith("ao ")]


def _root_context() -> click.Context:
    """Return a context of `ao`; a command keeps the help option of the first context that it was used in."""
    return click.Context(cli, info_name="ao", **cli.context_settings)


def _resolve(words: list[str]) -> tuple[click.Command, list[str]]:
    context = _root_context()
    command: click.Command | None = cli.get_command(context, words[0])
    assert command is not None
    rest = words[1:]
    while isinstance(command, click.Group) and rest and (inner := command.get_command(context, rest[0])):
        command, rest = inner, rest[1:]
    return command, rest


def test_the_skill_names_commands() -> None:
    assert len(_named()) > 25


@pytest.mark.parametrize("line", [line for line in _named() if line not in ("ao --help", "ao COMMAND --help")])
def test_the_command_and_its_options_exist(line: str) -> None:
    words = shlex.split(line)[1:]
    assert words[0] in COMMANDS
    command, rest = _resolve(words)
    options = {option for param in command.params if isinstance(param, click.Option) for option in param.opts}
    assert [word for word in rest if word.startswith("-") and word != "-"] == [
        word for word in rest if word in options
    ], line


@pytest.mark.parametrize("line", [line for line in _named() if "--help" not in line])
def test_the_command_can_be_parsed(line: str) -> None:
    command, rest = _resolve(shlex.split(line)[1:])
    command.make_context("ao", rest, parent=_root_context(), resilient_parsing=False)


def test_options_in_prose_exist() -> None:
    context = _root_context()
    options = {
        option
        for name in COMMANDS
        for param in (cli.get_command(context, name) or click.Command("")).params
        for option in getattr(param, "opts", ())
    }
    named = {match.split()[0] for match in re.findall(r"`(-{1,2}[a-zA-Z][a-z-]*[^`]*)`", _BODY)}
    assert named and named <= options


def test_the_front_matter_follows_the_standard() -> None:
    head = YAML(typ="safe").load(_HEAD)
    assert head["name"] == NAME and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", NAME) and len(NAME) <= 64
    assert 1 <= len(head["description"]) <= 1024
    assert set(head) <= {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
    assert _BODY.count("\n") < 500


def test_the_skill_is_in_the_wheel() -> None:
    assert (PACKAGE / "cli" / "skill_text" / "SKILL.md").is_file()
    assert 'packages = ["src/agent_orchestrator"]' in (ROOT / "pyproject.toml").read_text()
