"""Stores what a launch was begun with, before its process starts.

A daemon that dies between the start and its record begins the launch again, and finds the process that runs already. That process has the
first plan's conversation, port and message, so the first plan must be recorded. On another node there is neither that process nor what its
plan was made with, so the launch is begun again there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from agent_orchestrator.protocols import AgentLaunch

_PLUGIN_DATA = "memo"
"""The stored name of `AgentLaunch.plugin_data`."""


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """What a launch was begun with: the plan, the prompt, and the id of the message in it, or None."""

    plan: AgentLaunch
    prompt: str
    message: str | None


def load(private: Path, generation: int, run: int, moves: int = 0) -> LaunchRecord | None:
    """Return what this launch was begun with, or None if nothing complete is stored. `moves`: the nodes that the session left."""
    return _read(_file(private, generation, run, moves))


def message_of_lost_launch(private: Path, generation: int, moves: int) -> str | None:
    """Return the message that this launch was begun with on a node that the session has left, or None."""
    for file in private.glob(f"begun.{generation}.*"):
        if file.suffix == ".json" and _moves_of(file) != moves and (launch := _read(file)):
            return launch.message
    return None


def _read(file: Path) -> LaunchRecord | None:
    """Return a stored launch, or None if the file is missing or incomplete."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        plan = data["plan"]
        plan["plugin_data"] = plan.pop(_PLUGIN_DATA, {})
        stdin = None if plan["stdin"] is None else Path(plan["stdin"])
        return LaunchRecord(
            AgentLaunch(**{**plan, "argv": tuple(plan["argv"]), "stdin": stdin}),
            data["prompt"],
            data["message"],
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def store(private: Path, generation: int, run: int, begun: LaunchRecord, moves: int = 0) -> None:
    """Store what a launch is begun with, and remove what earlier launches were begun with."""
    file = _file(private, generation, run, moves)
    plan = {field.name: getattr(begun.plan, field.name) for field in fields(AgentLaunch)}
    plan[_PLUGIN_DATA] = plan.pop("plugin_data")
    text = json.dumps({"plan": plan, "prompt": begun.prompt, "message": begun.message}, default=_json_value)
    draft = file.with_suffix(".new")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as stream:  # noqa: PTH123
        stream.write(text)
    draft.replace(file)
    for other in private.glob("begun.*"):
        if other != file:
            other.unlink(missing_ok=True)


def _json_value(value: object) -> object:
    """Return a mapping as a dict, and any other value as text, for JSON."""
    return dict(value) if isinstance(value, Mapping) else str(value)


def _file(private: Path, generation: int, run: int, moves: int) -> Path:
    """Return the file of a launch."""
    return private / (f"begun.{generation}.{run}.{moves}.json" if moves else f"begun.{generation}.{run}.json")


def _moves_of(file: Path) -> int:
    """Return the number of nodes that the session had left, from a file's name."""
    _, _, _, moves, *_ = (*file.name.split("."), "")
    return int(moves) if moves.isdecimal() else 0
