"""The list of all targets."""

from __future__ import annotations

from contextlib import ExitStack

from tests.fuzz import agents, served, texts, tools, wires
from tests.fuzz.target import FuzzTarget
from tests.fuzz.world import world

DAEMONLESS_TARGETS: tuple[FuzzTarget, ...] = (*texts.TARGETS, *agents.TARGETS, *tools.TARGETS, *wires.TARGETS)
"""The targets that need no daemon."""


def all_targets(stack: ExitStack, only: list[str]) -> list[FuzzTarget]:
    """Return all targets, or those with these names; the stack ends the daemon that they need."""
    selected = [target for target in DAEMONLESS_TARGETS if not only or target.name in only]
    if only and len(selected) == len(set(only)):
        return selected
    daemons = served.daemon_targets(stack.enter_context(world()))
    return [*selected, *(target for target in daemons if not only or target.name in only)]
