"""The settings in force for one project, with everything resolved. The daemon works with these."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_orchestrator.config.load import expand_user
from agent_orchestrator.config.model import (
    AgentConfigSection,
    Budget,
    CheckSection,
    Config,
    Coordinator,
    Defaults,
    DockerSection,
    Filters,
    FixSection,
    Notifications,
    NotifierSection,
    OrchestratorSection,
    PlannerSection,
    PluginSection,
    Ports,
    Profile,
    Project,
    Reaction,
    ReviewSection,
    Routing,
)
from agent_orchestrator.config.overlay import overlay
from agent_orchestrator.config.units import QuietPeriod
from agent_orchestrator.core.rules.model import PRIORITIES


@dataclass(frozen=True, slots=True)
class ProjectConfig:
    """A project with the defaults of its file and of the user's own file merged in."""

    id: str
    name: str
    file: Path | None
    """Its configuration file; None for a repository without one."""
    path: Path
    repo: str | None
    default_branch: str | None
    """None: find it in the repository."""
    session_prefix: str
    runtime: str
    agent: str
    """The name of an agent or of a profile."""
    workspace: str | None
    """None: use what the agent works in."""
    tracker: PluginSection
    scm: PluginSection
    terminal: PluginSection
    ci: Mapping[str, CheckSection]
    commands: tuple[str, ...]
    """What its agents may run without asking, besides the checks."""
    symlinks: tuple[str, ...]
    copy: tuple[str, ...]
    sparse: tuple[str, ...]
    post_create: tuple[str, ...]
    red_base: str
    ports: Ports | None
    env: Mapping[str, str]
    worktree_dir: Path | None
    branch_pattern: str | None
    agent_rules: str
    agent_rules_file: Path | None
    agent_config: AgentConfigSection
    trusted_authors: tuple[str, ...]
    review: ReviewSection
    fix: FixSection
    budget: Budget
    docker: DockerSection
    sandbox: str
    unsandboxed: bool
    """Whether `sandbox: none` is written explicitly: the user wants no sandbox."""
    max_parallel_agents: int | None
    """The project's own limit; see `ConfigSet.parallel_limits` for all of them."""
    auto_assign: bool
    coordinator: Coordinator
    planner: PlannerSection
    profiles: Mapping[str, Profile]
    notifiers: Mapping[str, NotifierSection]
    """All notifiers that may be used, by name."""
    notifications: Notifications
    """How often notifications are sent."""
    routing: Mapping[str, tuple[str, ...]]
    """The names of the notifiers to use for each priority."""
    quiet: QuietPeriod | None
    """When only urgent notifications are sent."""
    plugins: tuple[Path, ...]
    reactions: tuple[Mapping[str, Reaction], ...]
    """The reactions of each file, the weakest first. `ConfigSet.rules` turns them into rules."""


@dataclass(frozen=True, slots=True)
class ResolvedAgent:
    """How one agent is run for one project: the resolved settings of `--agent NAME`."""

    tool: str
    """The agent plugin."""
    role: str
    """`worker` or `reviewer`."""
    profile: str | None
    runtime: str
    workspace: str | None
    """None: use what the agent works in."""
    model: str | None
    permissions: str
    mode: str
    mcp: bool
    """Whether it gets our MCP tools."""
    env: Mapping[str, str]
    rules: str
    skills: tuple[str, ...]
    filters: Filters
    budget: Budget
    account: str
    """Whose usage limits it shares."""
    max_parallel_agents: int | None
    options: Mapping[str, Any]
    """The agent plugin's configuration; for `command` and `demo` also the profile's own keys."""


_COMMAND_KEYS = {"command", "prompt", "resume", "screen", "script"}


def resolve_project(
    project_id: str,
    project: Project,
    root: Path,
    file: Path | None,
    configs: tuple[Config, ...],
    environ: Mapping[str, str],
) -> ProjectConfig:
    """Resolve a project. `configs` are the files that apply to it, the weakest first; paths in the last one are relative to `file`."""
    defaults, orchestrator, routing = Defaults(), OrchestratorSection(), Routing()
    profiles: dict[str, Profile] = {}
    notifications = Notifications()
    notifiers: dict[str, NotifierSection] = {}
    for config in configs:
        defaults = overlay(defaults, config.defaults)
        orchestrator = overlay(orchestrator, config.orchestrator)
        routing = overlay(routing, config.notification_routing)
        notifications = overlay(notifications, config.notifications)
        profiles = _overlay_each(profiles, config.agents)
        notifiers = _overlay_each(notifiers, config.notifiers)
    settings = overlay(overlay(Project(), defaults), project)
    routing = overlay(routing, project.notification_routing)
    notifiers_by_priority = {
        priority: settings.notifiers if (routed := getattr(routing, priority)) is None else routed
        for priority in PRIORITIES
    }
    all_notifiers = dict(notifiers)
    for name in (*settings.notifiers, *(name for names in notifiers_by_priority.values() for name in names)):
        all_notifiers.setdefault(notifier_name(name), _notifier(name))
    return ProjectConfig(
        id=project_id,
        name=settings.name or project_id,
        file=file,
        path=root,
        repo=settings.repo,
        default_branch=settings.default_branch,
        session_prefix=settings.session_prefix or project_id,
        runtime=settings.runtime,
        agent=settings.agent,
        workspace=settings.workspace if "workspace" in settings.model_fields_set else None,
        tracker=settings.tracker,
        scm=settings.scm,
        terminal=settings.terminal,
        ci=settings.ci,
        commands=settings.commands,
        symlinks=settings.symlinks,
        copy=settings.copy_,
        sparse=settings.sparse,
        post_create=settings.post_create,
        red_base=settings.red_base,
        ports=settings.ports,
        env=settings.env,
        worktree_dir=_resolve_below(root, settings.worktree_dir, environ),
        branch_pattern=settings.branch_pattern,
        agent_rules=settings.agent_rules,
        agent_rules_file=_resolve_below(root, settings.agent_rules_file, environ),
        agent_config=settings.agent_config,
        trusted_authors=settings.trusted_authors,
        review=settings.review,
        fix=settings.fix,
        budget=settings.budget,
        docker=settings.docker,
        sandbox=settings.sandbox,
        unsandboxed=settings.sandbox == "none" and "sandbox" in settings.model_fields_set,
        max_parallel_agents=settings.max_parallel_agents,
        auto_assign=orchestrator.auto_assign,
        coordinator=overlay(orchestrator.coordinator, project.coordinator),
        planner=orchestrator.planner,
        profiles=profiles,
        notifiers=all_notifiers,
        notifications=notifications,
        routing={priority: tuple(map(notifier_name, names)) for priority, names in notifiers_by_priority.items()},
        quiet=next((config.quiet_hours for config in reversed(configs) if config.quiet_hours), None),
        plugins=tuple(_plugin_files(configs[-1], file, environ)),
        reactions=(*(config.reactions for config in configs), project.reactions),
    )


def resolve_agent(project: ProjectConfig, name: str | None) -> ResolvedAgent:
    """Return the settings of the profile, or else the agent, with that name for a project. None: the project's own agent."""
    chosen_name = name or project.agent
    profile = project.profiles.get(chosen_name, Profile())
    profile_name = chosen_name if chosen_name in project.profiles else None
    own_tool = project.profiles.get(project.agent, Profile()).tool or project.agent
    tool = (profile.tool or own_tool) if profile_name else chosen_name
    config = project.agent_config
    # A model belongs to one agent: what the project sets for its own agent does not apply to another.
    model = profile.model or (config.model if tool == own_tool else None)
    command_options = profile.model_dump(include=_COMMAND_KEYS & profile.model_fields_set, exclude_none=True)
    return ResolvedAgent(
        tool=tool,
        role=profile.role,
        profile=profile_name,
        runtime=profile.runtime or project.runtime,
        workspace=profile.workspace or project.workspace,
        model=model,
        permissions=profile.permissions or config.permissions,
        mode=profile.mode or config.mode,
        mcp=config.mcp,
        env={**project.env, **profile.env},
        rules=profile.rules,
        skills=profile.skills,
        filters=profile.filters,
        budget=overlay(project.budget, profile.budget),
        account=profile.account or tool,
        max_parallel_agents=profile.max_parallel_agents,
        options={**(config.options if tool == own_tool else {}), **profile.options, **command_options},
    )


def notifier_name(text: str) -> str:
    """Return a notifier's name. An address is a secret, so its name holds only its service and a digest."""
    if "://" not in text:
        return text
    return f"{text.partition('://')[0]}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def _notifier(text: str) -> NotifierSection:
    """Return a notifier that is configured only by its name or its address."""
    return NotifierSection.model_validate({"plugin": "apprise", "url": text} if "://" in text else {"plugin": text})


def _overlay_each(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    return {**base, **{key: overlay(base[key], value) if key in base else value for key, value in top.items()}}


def _resolve_below(root: Path, text: str | None, environ: Mapping[str, str]) -> Path | None:
    return None if text is None else Path(os.path.normpath(root / expand_user(text, environ)))


def _plugin_files(config: Config, file: Path | None, environ: Mapping[str, str]) -> list[Path]:
    return [file.parent / expand_user(entry.path, environ) for entry in config.plugins] if file else []
