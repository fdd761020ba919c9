"""The agent that a new configuration names."""

from __future__ import annotations

from agent_orchestrator.config.projects.plugin_registry import PluginRegistry
from agent_orchestrator.protocols.host import Host

AGENT_PROGRAMS = {
    "claude-code": "claude",
    "codex": "codex",
    "opencode": "opencode",
    "aider": "aider",
    "cursor": "cursor-agent",
    "gemini": "gemini",
    "copilot": "copilot",
    "goose": "goose",
    "kimicode": "kimi",
}
"""Agents with the names of their programs, the most common first."""


def default_agent(host: Host) -> str:
    """Return the first of `AGENT_PROGRAMS` that is installed, else `demo`, the scripted one."""
    agent_names = PluginRegistry().names("agent")
    usual = [name for name, program in AGENT_PROGRAMS.items() if name in agent_names and host.which(program)]
    return usual[0] if usual else "demo"
