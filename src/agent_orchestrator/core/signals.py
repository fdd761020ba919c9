"""Signals: what parts of the daemon let each other know while it runs, and what is not recorded.

An event is stored and folded; a signal only says that something which is kept in memory changed. Parts emit and receive both through
`Flow`, so that no part has to know who listens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent_orchestrator.core.events import Event
from agent_orchestrator.core.outbox import OutboxRow
from agent_orchestrator.protocols.forge import BaseChecks


@dataclass(frozen=True, slots=True)
class ConfigurationReloaded:
    """The configuration in force, or the list of projects, changed."""


@dataclass(frozen=True, slots=True)
class NodesChanged:
    """A session that waits for a node may start now."""


@dataclass(frozen=True, slots=True)
class QueuePlanned:
    """The order or a state in a merge queue changed although no event was recorded."""


@dataclass(frozen=True, slots=True)
class PlanProgressed:
    """The progress of a plan that is drafted or applied changed."""


@dataclass(frozen=True, slots=True)
class FixProgressed:
    """The progress of a fix changed."""


@dataclass(frozen=True, slots=True)
class BaseStateChanged:
    """A base branch became good or bad."""


@dataclass(frozen=True, slots=True)
class BaseChecksRead:
    """A forge reported the states of a project's base branches."""

    project: str
    bases: Mapping[str, BaseChecks]


@dataclass(frozen=True, slots=True)
class AccountsReviewed:
    """Sessions that wait for an account's usage limit may ask again."""


@dataclass(frozen=True, slots=True)
class EffectAttempted:
    """An effect was run once."""

    before: OutboxRow
    after: OutboxRow
    began: float
    events: Sequence[Event]
