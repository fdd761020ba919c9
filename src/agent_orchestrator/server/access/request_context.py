"""Where a request comes from: the folder and configuration of the command line, and the project that a listing is about."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote_to_bytes

from agent_orchestrator.config.projects.projects import NO_CONTEXT, CommandContext
from agent_orchestrator.errors import UsageError
from agent_orchestrator.server.services import Services

MAX_KEY_LENGTH = 200
"""Characters that an `Idempotency-Key` may have."""


def context_of(headers: Mapping[bytes, bytes]) -> CommandContext:
    """Return the folder and configuration that the command line was run with; trusted over the Unix socket only."""
    cwd = _path(headers, b"x-ao-cwd")
    config = _path(headers, b"x-ao-config")
    if cwd is not None and not cwd.is_absolute():
        raise UsageError(f"X-AO-Cwd is {str(cwd)!r}, which is no absolute path", "send the whole path, percent-encoded")
    if config is not None and cwd is not None:
        config = cwd / config.expanduser()
    return CommandContext(cwd=cwd, config=config, shows_notices=headers.get(b"x-ao-notices") == b"shown")


def _path(headers: Mapping[bytes, bytes], name: bytes) -> Path | None:
    """Return the path in a percent-encoded header, or None if it is absent or empty."""
    raw = unquote_to_bytes(headers.get(name, b""))
    if b"\0" in raw:
        raise UsageError(f"{name.decode()} holds a NUL character", "send a path, percent-encoded")
    return Path(os.fsdecode(raw)) if raw else None


async def resolve_listed_project(
    services: Services, context: CommandContext, project: str | None, everything: bool
) -> str | None:
    """Return the project that a listing is about, or None for all projects."""
    if everything or (project is None and context is NO_CONTEXT):
        return context.only
    return await services.projects.resolve(context, project)
