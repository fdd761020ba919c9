"""`ao completion`: scripts that make a shell complete commands, options and live names.

A script carries the whole table of commands, and reads names from the files that the daemon keeps in `$AO_HOME/names`: pressing Tab
starts no Python and asks nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import click

from agent_orchestrator.cli.app import COMMANDS, cli
from agent_orchestrator.cli.common import Live

HOW = {
    "bash": 'Put this into ~/.bashrc: eval "$(ao completion bash)"',
    "zsh": 'Put this into ~/.zshrc: eval "$(ao completion zsh)"; or write it to _ao in a folder of $fpath.',
    "fish": "Put this into ~/.config/fish/config.fish: ao completion fish | source",
}
FREE = "-"
"""Nothing to propose: a text, a number."""
_FILES = ("FILE", "DIR", "PATH or URL")
_BRANCHES = ("base", "branch")


class Word(NamedTuple):
    """Something that may be typed, and what it is."""

    text: str
    about: str


class Place(NamedTuple):
    """What may follow a command."""

    names: tuple[str, ...]
    """The words that lead here, in each spelling: ` status`, ` ls`; empty for `ao` itself."""
    commands: tuple[Word, ...]
    options: tuple[Word, ...]
    values: dict[str, str]
    """What an option's value is: `sessions`, `branches`, `files`, `:a,b` for one of these, `-` for anything."""
    arguments: tuple[str, ...]
    rest: str
    """What all further arguments are; empty: there are none."""


@click.command()
@click.argument("shell", metavar="SHELL", type=click.Choice(list(HOW)))
def completion(shell: str) -> None:
    """Print the completion script for a shell: bash, zsh or fish.

    Names of sessions, projects, agents, plans, nodes and runs of `ao fix` are those the daemon knows, branches those of the repository.
    """
    from agent_orchestrator.cli.setup.completion_scripts import SCRIPTS

    print(f"# {HOW[shell]}" if shell != "zsh" else f"#compdef ao agent-orchestrator\n# {HOW[shell]}")
    print(SCRIPTS[shell](list(places())), end="")


def places() -> Iterator[Place]:
    """Every command, `ao` itself first."""
    root = click.Context(cli, info_name="ao")
    commands = tuple(Word(name, entry.summary) for name, entry in COMMANDS.items())
    status = cli.get_command(root, "status")
    assert status is not None
    shared = [one for one in status.params if {*one.opts} & {"-p", "-A", "--json"}]
    yield _place(("",), [*cli.params, *shared], root, commands)
    for name, entry in COMMANDS.items():
        command = cli.get_command(root, name)
        if command is not None and not entry.alias_of:
            names = [name, *(other for other, one in COMMANDS.items() if one.alias_of == name)]
            yield from _below(
                command, click.Context(command, info_name=name, parent=root), [f" {one}" for one in names]
            )


def _below(command: click.Command, ctx: click.Context, names: list[str]) -> Iterator[Place]:
    below = command.commands if isinstance(command, click.Group) else {}
    words = tuple(Word(name, _first_sentence(one.help)) for name, one in below.items())
    yield _place(tuple(names), command.params, ctx, words)
    for name, one in below.items():
        inner = click.Context(one, info_name=name, parent=ctx)
        yield from _below(one, inner, [f"{above} {name}" for above in names])


def _place(
    names: tuple[str, ...], params: list[click.Parameter], ctx: click.Context, commands: tuple[Word, ...]
) -> Place:
    options = [Word("--help", "Show what it does.")]
    values: dict[str, str] = {}
    arguments: list[str] = []
    rest = ""
    for param in params:
        if isinstance(param, click.Option):
            spelled = [*param.opts, *param.secondary_opts]
            options += [Word(one, " ".join((param.help or "").split())) for one in spelled]
            if not param.is_flag and not param.count:
                values |= dict.fromkeys(spelled, _kind(param, ctx))
        elif param.nargs == -1:
            rest = _kind(param, ctx)
        else:
            arguments.append(_kind(param, ctx))
    return Place(names, commands, tuple(options), values, tuple(arguments), rest)


def _kind(param: click.Parameter, ctx: click.Context) -> str:
    """What a value is, as a script knows it."""
    if isinstance(param.type, Live):
        return param.type.kind
    if isinstance(param.type, click.Choice):
        return f":{','.join(map(str, param.type.choices))}"
    if param.name in _BRANCHES:
        return "branches"
    metavar = (param.metavar or "").strip("[]")
    if metavar in _FILES or param.name == "file" or (metavar == "PATH" and ctx.info_name != "api"):
        return "files"
    return FREE


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").partition("\n\n")[0].split()).partition(". ")[0]
