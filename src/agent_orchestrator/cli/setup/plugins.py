"""Plugins: `ao plugins`, `ao plugins new`."""

from __future__ import annotations

import os
from typing import Any

import click

from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import client, json_option
from agent_orchestrator.errors import AoError, Conflict, UsageError


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def plugins(ctx: click.Context, as_json: bool) -> None:
    """List the plugins: where each comes from, what it declares that it needs, and whether it is in force.

    Code of others runs only where a configuration that you trust names it. Listing runs none of it.
    """
    if ctx.invoked_subcommand is not None:
        return
    answer = client().get("/api/plugins")
    if as_json:
        out.print_json(answer)
        return
    rows = [
        (
            plugin.get("slot") or "?",
            plugin["name"],
            " ".join(filter(None, (plugin["origin"], plugin.get("version")))),
            _permissions_text(plugin),
            "yes" if plugin["inForce"] else f"no: {plugin.get('problem')}",
        )
        for plugin in answer["plugins"]
    ]
    out.print_lines(out.table(("SLOT", "NAME", "FROM", "NEEDS", "IN FORCE"), rows, shrink=2))


def _permissions_text(plugin: dict[str, Any]) -> str:
    if plugin["origin"] == "built in":
        return "-"
    declared = plugin.get("permissions")
    return "undeclared" if declared is None else ", ".join(declared) or "nothing"


@plugins.command("new")
@click.argument("slot", metavar="SLOT", shell_complete=lambda _ctx, _param, begun: _complete_slot(begun))
@click.argument("name", metavar="NAME")
@click.option("--path", metavar="DIR", help="Where to; absent: a folder by the package's name, here.")
@json_option
def new(slot: str, name: str, path: str | None, as_json: bool) -> None:
    """Write a package with a working, tested plugin, to begin with.

    SLOT: runtime, agent, workspace, tracker, scm, notifier or terminal. Its tests run the slot's contract suite.
    """
    from agent_orchestrator.cli import scaffold

    _check_names(slot, name)
    folder = os.path.abspath(os.path.expanduser(path or scaffold.distribution(slot, name)))
    files = scaffold.files(slot, name)
    _write_files(folder, files)
    usage = scaffold.usage(slot, name)
    commands = [f"cd {_quote(folder)}", "python -m pip install -e '.[test]'", "python -m pytest"]
    if as_json:
        out.print_json(
            {"slot": slot, "name": name, "path": folder, "files": list(files), "next": commands, "configuration": usage}
        )
        return
    print(f"{folder} has the {slot} plugin {name}:")
    out.print_lines(f"  {file}" for file in files)
    print("Try it, in the environment that ao runs in:")
    out.print_lines(f"  {command}" for command in commands)
    print("Put it into use in agent-orchestrator.yaml, then see ao plugins:")
    out.print_lines(f"  {line}" for line in usage.splitlines())
    module = next(file for file in files if "/" not in file and file.endswith(".py"))
    print(f"Without installing it, name its file there too: plugins: [{{path: {os.path.join(folder, module)}}}]")


def _complete_slot(incomplete: str) -> list[str]:
    from agent_orchestrator.cli import scaffold

    return [slot for slot in scaffold.SLOTS if slot.startswith(incomplete)]


def _check_names(slot: str, name: str) -> None:
    from agent_orchestrator.cli import scaffold

    if slot not in scaffold.SLOTS:
        raise UsageError(f"there is no plugin slot {slot!r}", f"the slots are {', '.join(scaffold.SLOTS)}")
    if not scaffold.is_name(name):
        rule = f"small letters, digits and hyphens between them, at most {scaffold.MAX_NAME_LENGTH}"
        raise UsageError(f"{name!r} is no name for a plugin", f"use {rule}: my-{slot}")
    if name in scaffold.RESERVED:
        raise Conflict(f"the {slot} {name} has a meaning of its own", f"choose another name: my-{name}")
    if owner := _owning_package(slot, name):
        raise Conflict(f"the {slot} {name} is one of {owner}", f"choose another name: my-{name}")


def _owning_package(slot: str, name: str) -> str:
    """Return the package that provides a plugin of this name, or an empty string. Our own plugins are read from the code."""
    from importlib.metadata import entry_points

    from agent_orchestrator.base.builtin_plugins import BUILTIN_PLUGINS

    own_package = "agent-orchestrator"
    if name in BUILTIN_PLUGINS[slot]:
        return own_package
    owners = [point.dist.name for point in entry_points(group=f"agent_orchestrator.{slot}", name=name) if point.dist]
    return next((owner for owner in owners if owner != own_package), "")


def _write_files(folder: str, files: dict[str, str]) -> None:
    """Write all files into a new or empty folder; raise Conflict if it is not empty."""
    try:
        os.makedirs(folder, exist_ok=True)
        if os.listdir(folder):
            raise Conflict(f"{folder} is not empty: nothing was written", "name another folder: --path DIR")
        for path, text in files.items():
            target = os.path.join(folder, *path.split("/"))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise AoError(
            f"{error.filename or folder} cannot be written: {error.strerror}", "name another: --path DIR"
        ) from None


def _quote(path: str) -> str:
    import shlex

    return shlex.quote(path)
