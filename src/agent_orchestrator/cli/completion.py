"""`ao completion`: scripts that make a shell complete commands, options and live names."""

from __future__ import annotations

import click

from agent_orchestrator.cli.app import cli

_HOW = {
    "bash": 'Put this into ~/.bashrc: eval "$(ao completion bash)"',
    "zsh": 'Put this into ~/.zshrc: eval "$(ao completion zsh)"',
    "fish": "Put this into ~/.config/fish/config.fish: ao completion fish | source",
}


@click.command()
@click.argument("shell", metavar="SHELL", type=click.Choice(list(_HOW)))
def completion(shell: str) -> None:
    """Print the completion script for a shell: bash, zsh or fish.

    Names of sessions, projects, agents, plans, nodes and runs of `ao fix` are completed from the running daemon.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    print(f"# {_HOW[shell]}")
    for program in ("ao", "agent-orchestrator"):
        print(kind(cli, {}, program, "_AO_COMPLETE").source())
