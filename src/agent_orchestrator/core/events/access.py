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
    """Somebody tried to sign in, and was not let in; `more` were refused since the last one that is written down."""

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
    """Somebody asked for what he may not; `more` were refused since the last one that is written down."""

    method: str
    path: str
    reason: str
    peer: str = ""
    more: int = 0


@record
class EnvironmentRead(Body):
    """Somebody was given a session's environment, secrets included."""


@record
class CommandRun(Body):
    """Somebody ran a command in a session's workspace."""

    command: tuple[str, ...]


@record
class TerminalTaken(Body):
    """Somebody got hold of an agent's terminal: by the first key `typed` in a browser, or `attached` on this machine."""

    how: str


@record
class SettingChanged(Body):
    """A value of a configuration file was changed through the daemon."""

    name: str
    file: str


@record
class PluginLoaded(Body):
    """Code of somebody else was loaded, as the configuration says: its file or package, the SHA-256 of its file, what it declares."""

    plugin: str
    origin: str
    version: str = ""
    digest: str = ""
    permissions: tuple[str, ...] | None = None


@record
class ShutdownRequested(Body):
    """Somebody ended the daemon; `sessions`: and stopped all sessions."""

    sessions: bool = False


@record
class ActionTaken(Body):
    """Somebody asked for a change, and it was made; for changes that no other event tells of."""

    action: str
    detail: str = ""
