"""The reference page and the man page match the commands."""

from __future__ import annotations

from pathlib import Path

import click

from agent_orchestrator.cli.app import COMMANDS, cli
from agent_orchestrator.cli.manual import man_page
from agent_orchestrator.cli.reference import reference_page

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "commands.md"
MANUAL = PAGE.with_name("ao.1")


def test_the_page_matches_the_commands() -> None:
    assert PAGE.read_text() == reference_page(), (
        f"run `python -m agent_orchestrator.cli.reference {PAGE.relative_to(Path.cwd())}`"
    )


def test_the_man_page_matches_the_commands() -> None:
    assert MANUAL.read_text() == man_page(), (
        f"run `python -m agent_orchestrator.cli.manual {MANUAL.relative_to(Path.cwd())}`"
    )


def test_the_man_page_has_every_command_and_valid_roff() -> None:
    lines = man_page().splitlines()
    macros = {"TH", "SH", "SS", "TP", "PP", "B", "BI", "BR", "I", "TS", "TE", "br"}
    assert {line[1:].split()[0] for line in lines if line.startswith(".")} == macros
    headings = [line.replace("\\-", "-") for line in lines if line.startswith(".SS ao ")]
    commands = {line.split()[2] for line in headings}
    assert commands == {name for name, entry in COMMANDS.items() if not entry.alias_of}
    assert all(line.isascii() for line in lines)


def test_every_command_and_option_has_a_help_text() -> None:
    context = click.Context(cli, info_name="ao", **cli.context_settings)
    for name, entry in COMMANDS.items():
        command = cli.get_command(context, name)
        assert command is not None and command.help, name
        commands = [command, *(command.commands.values() if isinstance(command, click.Group) else ())]
        for each in commands:
            assert all(option.help for option in each.params if isinstance(option, click.Option)), name
        if not entry.alias_of:
            summary = entry.summary.rstrip(".")
            assert " ".join(command.help.split()).startswith(summary), (
                f"{name}: its help begins otherwise than its summary"
            )
