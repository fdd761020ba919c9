"""Events of projects: registration, trust in their commands, and their configuration files."""

from __future__ import annotations

from agent_orchestrator.core.events.event import Body
from agent_orchestrator.protocols.records import record


@record
class ProjectRegistered(Body):
    """A repository is ours to work in; `config` is the file that describes it, if any."""

    path: str
    config: str | None = None
    announced: bool = False
    """The user knows that set-ups are proven by `ao init --check`; false if an earlier version registered it."""


@record
class ProjectRemoved(Body):
    """A person removed a project; it does not come back automatically."""


@record
class CommandsTrusted(Body):
    """The commands with this digest may run."""

    digest: str
    file: str
    by: str = "person"


@record
class CommandsProposed(Body):
    """The commands with this digest were detected and written into a new file; they do not run before a person confirms them."""

    digest: str
    file: str


@record
class ConfigurationChanged(Body):
    """A changed configuration file took effect."""

    file: str
    changes: tuple[str, ...] = ()


@record
class ConfigurationBroken(Body):
    """A configuration file cannot be read any more; the last good one stays in force."""

    file: str
    error: str
