"""What a launch was begun with, written down before its process starts.

A daemon that dies between the start and its record begins the launch again, and finds the process that runs already. That one has the
first plan's conversation, port and message, so the first plan is what is recorded. On another node there is no such process, and
nothing that its plan was made with: there the launch is begun anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from agent_orchestrator.protocols import AgentLaunch


@dataclass(frozen=True, slots=True)
class Begun:
    """One launch: the plan, the prompt it was made for, and the message that it carries, if any."""

    plan: AgentLaunch
    prompt: str
    message: str | None


def kept(private: Path, generation: int, run: int, moves: int = 0) -> Begun | None:
    """What this launch was begun with before; none: it was not, or not written down whole. `moves`: the nodes that the session left."""
    return _read(_file(private, generation, run, moves))


def given_before(private: Path, generation: int, moves: int) -> str | None:
    """The message that this launch was begun with on a node which the session has left since."""
    for file in private.glob(f"begun.{generation}.*"):
        if file.suffix == ".json" and _moves(file) != moves and (begun := _read(file)):
            return begun.message
    return None


def _read(file: Path) -> Begun | None:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        plan = found["plan"]
        stdin = None if plan["stdin"] is None else Path(plan["stdin"])
        return Begun(
            AgentLaunch(**{**plan, "argv": tuple(plan["argv"]), "stdin": stdin}), found["prompt"], found["message"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(private: Path, generation: int, run: int, begun: Begun, moves: int = 0) -> None:
    """Write down what is begun; what earlier launches were begun with is not needed any more."""
    file = _file(private, generation, run, moves)
    plan = {one.name: getattr(begun.plan, one.name) for one in fields(AgentLaunch)}
    text = json.dumps({"plan": plan, "prompt": begun.prompt, "message": begun.message}, default=_plain)
    draft = file.with_suffix(".new")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:  # noqa: PTH123
        out.write(text)
    draft.replace(file)
    for other in private.glob("begun.*"):
        if other != file:
            other.unlink(missing_ok=True)


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)


def _file(private: Path, generation: int, run: int, moves: int) -> Path:
    return private / (f"begun.{generation}.{run}.{moves}.json" if moves else f"begun.{generation}.{run}.json")


def _moves(file: Path) -> int:
    _, _, _, moves, *_ = (*file.name.split("."), "")
    return int(moves) if moves.isdecimal() else 0
