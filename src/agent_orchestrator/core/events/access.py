"""Events for the audit log: who signed in, and what people did for which there is no other event."""

from __future__ import annotations

from agent_orchestrator.core.events.event import Body
from agent_orchestrator.protocols.records import record


@record
class SignedIn(Body):
    """A browser signed in, by a one-time link or by a token."""

    id: str
    name: str
    role: str
    how: str
    peer: str = ""


@record
class SignedOut(Body):
    """A browser signed out."""

    id: str
    name: str


@record
class SignInRefused(Body):
    """A sign-in was refused; `more` were refused since the last recorded one."""

    reason: str
    peer: str = ""
    more: int = 0


@record
class LoginLinkMade(Body):
    """A link was made that signs in the browser which opens it first."""

    role: str


@record
class TokenMade(Body):
    """A token was made; `kind` is `token`, or `node` for a machine of the cluster."""

    name: str
    role: str = ""
    id: str = ""
    kind: str = "token"


@record
class TokenRevoked(Body):
    """A token or a sign-in is worthless from now on."""

    id: str
    name: str
    role: str


@record
class AccessRefused(Body):
    """A request was refused because the caller may not make it; `more` were refused since the last recorded one."""

    method: str
    path: str
    reason: str
    peer: str = ""
    more: int = 0


@record
class EnvironmentRead(Body):
    """A caller read a session's environment, secrets included."""


@record
class CommandRun(Body):
    """A caller ran a command in a session's workspace."""

    command: tuple[str, ...]


@record
class TerminalTaken(Body):
    """A caller took control of an agent's terminal: by the first key `typed` in a browser, or `attached` on this machine."""

    how: str


@record
class SettingChanged(Body):
    """A value of a configuration file was changed through the daemon."""

    name: str
    file: str


@record
class PluginLoaded(Body):
    """Third-party code was loaded, as configured: its file or package, the SHA-256 of its file, its declared permissions."""

    plugin: str
    origin: str
    version: str = ""
    digest: str = ""
    permissions: tuple[str, ...] | None = None


@record
class ShutdownRequested(Body):
    """A caller stopped the daemon; `sessions`: and all sessions."""

    sessions: bool = False


@record
class ActionTaken(Body):
    """A caller requested a change, and it was made; for changes without another event."""

    action: str
    detail: str = ""
