"""Secrets in the system's keyring, for the configuration and the forges: `ao secret set, list, remove`."""

from __future__ import annotations

import sys

import click

from agent_orchestrator.base import keyring
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import json_option
from agent_orchestrator.errors import NotFound


@click.group()
def secret() -> None:
    """Keep secrets in the system's keyring: `${keyring:NAME}` in the configuration."""


@secret.command("set")
@click.argument("name", metavar="NAME")
def set_secret(name: str) -> None:
    """Keep a secret under NAME. It is asked for, or read from standard input: never an argument, which others could see."""
    if sys.stdin.isatty():
        value = str(click.prompt(name, hide_input=True, err=True))
    else:
        value = sys.stdin.read().rstrip("\r\n")
    keyring.write(name, value)
    print(f"{name} is in the keyring. A daemon that runs takes it up when it is started anew: ao shutdown, ao start")


@secret.command("list")
@json_option
def list_secrets(as_json: bool) -> None:
    """List the names of the secrets in the keyring."""
    names = keyring.names()
    if as_json:
        out.print_json({"secrets": names})
    else:
        print("\n".join(names) or "No secrets. Keep one: ao secret set NAME")


@secret.command("remove")
@click.argument("name", metavar="NAME")
def remove(name: str) -> None:
    """Remove a secret from the keyring."""
    if not keyring.remove(name):
        raise NotFound(f"there is no secret {name} in the keyring", "ao secret list shows them")
    print(f"{name} is removed.")
