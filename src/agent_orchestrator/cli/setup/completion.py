"""`ao completion`: scripts that let a shell complete commands, options and live names.

A script contains the whole table of commands and reads names from the files that the daemon writes to `$AO_HOME/names`:
pressing Tab starts no Python and sends no request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import click

from agent_orchestrator.cli.app import COMMANDS, cli
from agent_orchestrator.cli.common import DaemonName

INSTALL_HINTS = {
    "bash": 'Put this into ~/.bashrc: eval "$(ao completion bash)"',
    "zsh": 'Put this into ~/.zshrc: eval "$(ao completion zsh)"; or write it to _ao in a folder of $fpath.',
    "fish": "Put this into ~/.config/fish/config.fish: ao completion fish | source",
}
ANY_VALUE = "-"
"""The value kind without proposals: a text, a number."""
_FILES = ("FILE", "DIR", "PATH or URL")
_BRANCHES = ("base", "branch")


class CompletionWord(NamedTuple):
    """A word that may be typed, and its description."""

    text: str
    about: str


class CompletionPlace(NamedTuple):
    """What may follow a command."""

    names: tuple[str, ...]
    """The words of the command in each spelling: ` status`, ` ls`; empty for `ao` itself."""
    commands: tuple[CompletionWord, ...]
    options: tuple[CompletionWord, ...]
    values: dict[str, str]
    """The kind of an option's value: `sessions`, `branches`, `files`, `:a,b` for one of these, `-` for anything."""
    arguments: tuple[str, ...]
    rest: str
    """The kind of all further arguments; empty if there are none."""


@click.command()
@click.argument("shell", metavar="SHELL", type=click.Choice(list(INSTALL_HINTS)))
def completion(shell: str) -> None:
    """Print the completion script for a shell: bash, zsh or fish.

    Names of sessions, projects, agents, plans, nodes and runs of `ao fix` are those the daemon knows, branches those of the repository.
    """
    from agent_orchestrator.cli.setup.completion_scripts import SCRIPTS

    print(
        f"# {INSTALL_HINTS[shell]}" if shell != "zsh" else f"#compdef ao agent-orchestrator\n# {INSTALL_HINTS[shell]}"
    )
    print(SCRIPTS[shell](list(completion_places())), end="")


def completion_places() -> Iterator[CompletionPlace]:
    """Yield the place after every command, after `ao` itself first."""
    root = click.Context(cli, info_name="ao", **cli.context_settings)
    commands = tuple(CompletionWord(name, entry.summary) for name, entry in COMMANDS.items())
    status = cli.get_command(root, "status")
    assert status is not None
    shared_options = [param for param in status.params if {*param.opts} & {"-p", "-A", "--json"}]
    yield _completion_place(("",), [*cli.params, *shared_options], root, commands)
    for name, entry in COMMANDS.items():
        command = cli.get_command(root, name)
        if command is not None and not entry.alias_of:
            names = [name, *(alias for alias, param in COMMANDS.items() if param.alias_of == name)]
            yield from _places_below(
                command, click.Context(command, info_name=name, parent=root), [f" {param}" for param in names]
            )


def _places_below(command: click.Command, ctx: click.Context, names: list[str]) -> Iterator[CompletionPlace]:
    subcommands = command.commands if isinstance(command, click.Group) else {}
    words = tuple(CompletionWord(name, _first_sentence(subcommand.help)) for name, subcommand in subcommands.items())
    yield _completion_place(tuple(names), command.params, ctx, words)
    for name, subcommand in subcommands.items():
        inner = click.Context(subcommand, info_name=name, parent=ctx)
        yield from _places_below(subcommand, inner, [f"{above} {name}" for above in names])


def _completion_place(
    names: tuple[str, ...], params: list[click.Parameter], ctx: click.Context, commands: tuple[CompletionWord, ...]
) -> CompletionPlace:
    options = [CompletionWord("--help", "Show what it does.")]
    values: dict[str, str] = {}
    arguments: list[str] = []
    further = ""
    for param in params:
        if isinstance(param, click.Option):
            spellings = [*param.opts, *param.secondary_opts]
            options += [CompletionWord(spelling, " ".join((param.help or "").split())) for spelling in spellings]
            if not param.is_flag and not param.count:
                values |= dict.fromkeys(spellings, _value_kind(param, ctx))
        elif param.nargs == -1:
            further = _value_kind(param, ctx)
        else:
            arguments.append(_value_kind(param, ctx))
    return CompletionPlace(names, commands, tuple(options), values, tuple(arguments), further)


def _value_kind(param: click.Parameter, ctx: click.Context) -> str:
    """Return the kind of a parameter's value as the scripts use it."""
    if isinstance(param.type, DaemonName):
        return param.type.kind
    if isinstance(param.type, click.Choice):
        return f":{','.join(map(str, param.type.choices))}"
    if param.name in _BRANCHES:
        return "branches"
    metavar = (param.metavar or "").strip("[]")
    if metavar in _FILES or param.name == "file" or (metavar == "PATH" and ctx.info_name != "api"):
        return "files"
    return ANY_VALUE


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").partition("\n\n")[0].split()).partition(". ")[0]
