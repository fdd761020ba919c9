"""The models of answers about agents, profiles and plugins."""

from __future__ import annotations

from pydantic import Field

from agent_orchestrator.server.schema.models.answer import Answer


class Agent(Answer):
    """A coding agent's CLI on this machine, or a profile of a project: a name that a task may be given to."""

    name: str
    project: str | None
    """The project whose profile it is; none: an agent, which every project may use."""
    tool: str
    """The agent that works under this name."""
    role: str | None
    """Of a profile: `worker` or `reviewer`."""
    is_installed: bool = Field(alias="found")
    path: str | None
    version: str | None
    problem: str | None
    """Why it cannot be used."""


class Agents(Answer):
    """All agents that we know of, and the profiles of all projects."""

    agents: list[Agent]


class Plugin(Answer):
    """A plugin, and whether it may be used."""

    slot: str | None
    """None: it is known once its file is run."""
    name: str
    origin: str
    """`built in`, an installed package, or a file."""
    version: str | None
    permissions: list[str] | None
    """What it declares that it needs: `network`, `files`, `processes`, `secrets`; null: it declares nothing."""
    digest: str | None
    """SHA-256 of its file."""
    in_force: bool
    problem: str | None
    """Why it is not in force."""


class Plugins(Answer):
    """All plugins."""

    plugins: list[Plugin]
