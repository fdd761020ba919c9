"""Events of the daemon: its start and end, its clock, its failed effects, and forges that it cannot read."""

from __future__ import annotations

from agent_orchestrator.core.events.event import Body
from agent_orchestrator.protocols.records import record


@record
class TimerDue(Body):
    """A time that was waited for has come."""

    name: str


@record
class ClockSetBack(Body):
    """The machine's clock had been wrong by so much: what was dated and due by it is so no longer."""

    seconds: float


@record
class MachineWoke(Body):
    """The machine slept for so long, and the agent with it: its silence in that time says nothing about it."""

    seconds: float


@record
class EffectFailed(Body):
    """An effect was given up."""

    intent: str
    error: str
    remedy: str = ""
    attempts: int = 1


@record
class EffectDelayed(Body):
    """An effect cannot be carried out for now, for this reason; it is retried automatically as long as it is needed."""

    intent: str
    error: str
    remedy: str = ""
    attempts: int = 1


@record
class ReadingFailed(Body):
    """A project's forge or tracker cannot be read: for long already, or until a person fixes it."""

    name: str
    reason: str
    remedy: str
    since: float
    called: bool = False
    """Waiting does not fix it."""


@record
class ReadingResumed(Body):
    """It can be read again, or need not be any more."""

    name: str


@record
class DaemonStarted(Body):
    """The daemon has started; what it found."""

    version: str
    adopted: int = 0
    ended: int = 0
    lost: int = 0
    pending: int = 0


@record
class DaemonStopped(Body):
    """The daemon ended in good order; its sessions run on."""

    reason: str = ""
