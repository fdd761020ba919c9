"""How to reach the server of a launch: its port and password, kept in the session's private folder with what was delivered there."""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from agent_orchestrator.errors import Temporary
from agent_orchestrator.plugins.agents.shared.loopback_client import LoopbackClient
from agent_orchestrator.protocols import (
    AgentContext,
    RunningLaunch,
)

USER = "opencode"
PORTS = range(12000, 32000)
"""The ports to choose from: below the range that systems use for outgoing connections, so a free port is still free when the
server binds it.
"""
MAX_MESSAGE_IDS = 100
"""The number of messages whose ids are remembered across a restart of the agent."""


@dataclass(frozen=True, slots=True)
class OpenCodeConnection:
    """How to reach the server of one launch, and which messages were delivered there.

    It is kept in the session's private folder: no other user may read the password, and the data must survive a crash of the
    daemon.
    """

    launch: str = ""
    port: int = 0
    password: str = ""
    conversation: str | None = None
    sent: Mapping[str, str] = field(default_factory=dict)
    """OpenCode's ids of our messages, chosen before delivery, so that a second attempt is the same message."""
    adopts: str = ""
    """The id of a conversation that was begun elsewhere; a copy of it is to be continued here."""
    interrupting: str = ""
    """The id of the message for which a turn is being stopped: the end of that turn is not reported as an interruption."""


def create_connection(context: AgentContext) -> OpenCodeConnection:
    """Return the port and password for this launch; the same ones if it was called for this launch before."""
    connection, launch = load_connection(context.private), context.env.get("AO_SPOOL", "")
    if connection.port and launch and connection.launch == launch:
        return connection
    new_connection, adopted = OpenCodeConnection(launch, _free_port(), secrets.token_urlsafe(24)), connection.adopts
    if context.resume is None:
        return new_connection
    if context.resume and context.resume != connection.conversation:
        connection, adopted = new_connection, context.resume
    return replace(
        new_connection,
        conversation=connection.conversation,
        adopts=adopted,
        sent=dict(list(connection.sent.items())[-MAX_MESSAGE_IDS:]),
    )


def _free_port() -> int:
    """Return a free port; raise `Temporary` if 100 random ones are taken."""
    for _ in range(100):
        port = secrets.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Temporary("no free port was found for opencode's server")


def load_connection(private: Path) -> OpenCodeConnection:
    """Read how to reach the server from the session's private folder; an empty `OpenCodeConnection` if there is none."""
    try:
        return OpenCodeConnection(**json.loads((private / "opencode.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return OpenCodeConnection()


def save_connection(private: Path, connection: OpenCodeConnection) -> None:
    """Save how to reach the server, replacing the file in one step."""
    file = private / "opencode.json"
    new = file.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text(json.dumps(asdict(connection)), encoding="utf-8")
    new.replace(file)


def conversation_of(run: RunningLaunch) -> str | None:
    """Return the id of this session's conversation, or None before it has begun."""
    connection = load_connection(run.private)
    return run.conversation if run.conversation != connection.adopts else connection.conversation


def client_of(run: RunningLaunch) -> LoopbackClient:
    """Return the client for the server of this launch."""
    return LoopbackClient(int(run.plugin_data["port"]), USER, load_connection(run.private).password)
