"""Values that need trust: agents, runtimes and permissions with fewer walls than those that the user chose."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from agent_orchestrator.config import model as m
from agent_orchestrator.config.trust.power import TrustContext
from agent_orchestrator.config.trust.values import third_party_plugin

RANKS = ("plan", "default", "auto-edit", "full")
"""Permissions, from the least to the most."""


def weaker_agent(value: Any, section: Any, around: TrustContext) -> Any:
    """Return an agent that is not built in, or one with fewer walls than the user's agents or than the profile that the user would get
    here: only the user may choose such an agent.
    """
    own, file_profile = around.own.agents.get(value), around.profiles.get(value)
    is_weaker = (own and _is_less_restricted(own, around)) or _has_fewer_walls(
        own or file_profile or m.Profile(), _usual_profile(section, around), around
    )
    return value if is_weaker else None if own or file_profile else third_party_plugin("agent")(value, section, around)


def _usual_profile(section: Any, around: TrustContext) -> m.Profile | None:
    """Return the profile that the user's own file selects for this section, or None if it selects no profile."""
    own = around.own.orchestrator
    own_section = own.coordinator if isinstance(section, m.Coordinator) else own.planner
    profile_name = own_section.agent if isinstance(section, type(own_section)) else None
    return around.own.agents.get(profile_name or around.own.defaults.agent)


def _has_fewer_walls(profile: m.Profile, usual: m.Profile | None, around: TrustContext) -> bool:
    """Return whether a profile has fewer walls than the usual one sets, or differs from a usual one that has a budget."""
    if usual is None or profile is usual:
        return False
    if usual.budget.model_fields_set:
        return True
    has_container, usual_permissions = usual.runtime == "docker", usual.permissions
    runtime, permissions = _effective_walls(profile, around)
    return (has_container and runtime != "docker") or bool(
        usual_permissions and RANKS.index(permissions) > RANKS.index(usual_permissions)
    )


def _effective_walls(profile: m.Profile, around: TrustContext) -> tuple[str, str]:
    """Return runtime and permissions of a profile if only the user's own file adds defaults."""
    defaults = around.own.defaults
    return profile.runtime or defaults.runtime, profile.permissions or defaults.agent_config.permissions


def _is_less_restricted(profile: m.Profile, around: TrustContext) -> bool:
    leaves_container = around.own.defaults.runtime == "docker" and profile.runtime not in (None, "docker")
    return leaves_container or bool(wider_permissions(profile.permissions, profile, around))


def weaker_runtime(value: Any, section: Any, around: TrustContext) -> Any:
    """Return the runtime if it is not built in, or is no container although the user's default is one."""
    return (
        value
        if around.own.defaults.runtime == "docker" != value
        else third_party_plugin("runtime")(value, section, around)
    )


def wider_permissions(value: Any, _section: Any, around: TrustContext) -> Any:
    """Return permissions above those in the user's own file, or `full`."""
    own = around.own.defaults.agent_config.permissions
    return value if value == "full" or (value and RANKS.index(value) > RANKS.index(own)) else None


def wider_coordinator_permissions(value: Any, _section: Any, around: TrustContext) -> Any:
    return value if RANKS.index(value) > RANKS.index(around.own.orchestrator.coordinator.permissions) else None


def more_sessions(value: Any, _section: Any, around: TrustContext) -> Any:
    own = around.own.orchestrator.coordinator
    return value if "max_sessions" in own.model_fields_set and value > own.max_sessions else None


def profile_override(name: str, section: BaseModel, around: TrustContext) -> dict[str, Any]:
    """Return all that a profile sets if it overrides one of the user's: only the user decides its walls, tool and budget.

    So for a profile with fewer walls than the user's usual agent, because a profile can be assigned issues without being named.
    """
    if not isinstance(section, m.Profile):
        return {}
    fields = section.model_fields_set - {"rules", "skills", "model"}
    settings = section.model_dump(mode="json", by_alias=True, include=fields)
    if name in around.own.agents:
        return settings
    has_fewer_walls = _has_fewer_walls(section, _usual_profile(section, around), around)
    return (
        {**settings, **dict(zip(("runtime", "permissions"), _effective_walls(section, around), strict=True))}
        if has_fewer_walls
        else {}
    )
