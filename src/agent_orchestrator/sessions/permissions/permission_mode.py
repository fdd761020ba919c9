"""What an agent may do without asking: its permission mode, whether it may edit, and the commands that `auto-edit` allows. Pure."""

from __future__ import annotations

from agent_orchestrator.config.effective import ProjectConfig, ResolvedAgent
from agent_orchestrator.core.facts import COORDINATOR_KIND, REVIEWER_KIND
from agent_orchestrator.sessions.isolation import sandbox


def permission_mode(
    project: ProjectConfig, settings: ResolvedAgent, runtime: str, kind: str = "worker"
) -> tuple[str, str]:
    """Return the agent's permission mode, and a note for people if it differs from the configured one.

    `full` is used only inside a sandbox or container, or if `sandbox: none` is set explicitly. A reviewer may only
    read, unless its profile sets permissions; a coordinator has its own permissions.
    """
    profile = project.profiles.get(settings.profile or "")
    if kind == REVIEWER_KIND and (profile is None or profile.permissions is None):
        return "plan", ""
    is_isolated = runtime == "docker" or sandbox.is_sandboxed(project, runtime) or project.unsandboxed
    requested = project.coordinator.permissions if kind == COORDINATOR_KIND else settings.permissions
    if requested != "full" or is_isolated:
        return requested, ""
    note = (
        "permissions: full counts only in a sandbox; it runs with auto-edit. To mean it, write sandbox: none beside it"
    )
    return "auto-edit", note


def may_edit(project: ProjectConfig, kind: str) -> bool:
    """Return whether an agent of this kind changes files; a coordinator does not, unless the project allows it."""
    return kind != COORDINATOR_KIND or "edit" in project.coordinator.may


def check_commands(project: ProjectConfig) -> tuple[str, ...]:
    """Return the commands of the project's checks, which must pass before an agent finishes."""
    return tuple(dict.fromkeys(check.command for check in project.ci.values()))


def project_commands(project: ProjectConfig) -> tuple[str, ...]:
    """Return the project's own test, lint and build commands, which `auto-edit` allows."""
    return tuple(dict.fromkeys((*check_commands(project), *project.commands)))
