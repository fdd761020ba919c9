"""The list of all targets."""

from __future__ import annotations

from contextlib import ExitStack

from tests.fuzz import agents, served, texts, tools, wires
from tests.fuzz.target import Target
from tests.fuzz.world import world

PURE: tuple[Target, ...] = (*texts.TARGETS, *agents.TARGETS, *tools.TARGETS, *wires.TARGETS)
"""The targets that need no daemon."""


def every(stack: ExitStack, only: list[str]) -> list[Target]:
    """Return all targets, or those with these names; the stack ends the daemon that they need."""
    selected = [target for target in PURE if not only or target.name in only]
    if only and len(selected) == len(set(only)):
        return selected
    daemons = served.targets(stack.enter_context(world()))
    return [*selected, *(target for target in daemons if not only or target.name in only)]
