"""What is in force for one project, everything resolved: what the daemon works with."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_orchestrator.config.load import expand_user
from agent_orchestrator.config.merge import overlay
from agent_orchestrator.config.model import (
    AgentConfig,
    Budget,
    Check,
    Config,
    Coordinator,
    Defaults,
    Docker,
    Filters,
    Fix,
    Notifications,
    Notifier,
    Orchestrator,
    Planner,
    Plugin,
    Ports,
    Profile,
    Project,
    Reaction,
    Review,
    Routing,
)
from agent_orchestrator.config.values import Quiet
from agent_orchestrator.core.rules import PRIORITIES


@dataclass(frozen=True, slots=True)
class ProjectConfig:
    """A project with the defaults of its file and of the user's own file merged in."""

    id: str
    name: str
    file: Path | None
    """The file it comes from; none: a repository without one."""
    path: Path
    repo: str | None
    default_branch: str | None
    """None: find it in the repository."""
    session_prefix: str
    runtime: str
    agent: str
    """An agent's or a profile's name."""
    workspace: str | None
    """None: what the agent works in."""
    tracker: Plugin
    scm: Plugin
    terminal: Plugin
    ci: Mapping[str, Check]
    commands: tuple[str, ...]
    """What its agents may run without asking, beside the checks."""
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
    agent_config: AgentConfig
    trusted_authors: tuple[str, ...]
    review: Review
    fix: Fix
    budget: Budget
    docker: Docker
    sandbox: str
    unsandboxed: bool
    """`sandbox: none` is written there: the user says that there is none."""
    max_parallel_agents: int | None
    """The project's own limit; see `ConfigSet.limits` for all of them."""
    auto_assign: bool
    coordinator: Coordinator
    planner: Planner
    profiles: Mapping[str, Profile]
    notifiers: Mapping[str, Notifier]
    """Everyone who may be told, by name."""
    notifications: Notifications
    """How often they are told."""
    routing: Mapping[str, tuple[str, ...]]
    """Whom to tell, for each priority."""
    quiet: Quiet | None
    """When only what is urgent is told."""
    plugins: tuple[Path, ...]
    reactions: tuple[Mapping[str, Reaction], ...]
    """What the files say about reactions, the weakest first; `ConfigSet.rules` makes rules of it."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """How one agent is run for one project: what `--agent NAME` comes to."""

    tool: str
    """The agent plugin."""
    role: str
    """`worker` or `reviewer`."""
    profile: str | None
    runtime: str
    workspace: str | None
    """None: what the agent works in."""
    model: str | None
    permissions: str
    mode: str
    mcp: bool
    """It gets our MCP tools."""
    env: Mapping[str, str]
    rules: str
    skills: tuple[str, ...]
    filters: Filters
    budget: Budget
    account: str
    """Whose usage limits it shares."""
    max_parallel_agents: int | None
    options: Mapping[str, Any]
    """The agent plugin's configuration; for `command` and `demo` what the profile says of them."""


_DESCRIBED = {"command", "prompt", "resume", "screen", "script"}


def project_config(
    project_id: str,
    project: Project,
    root: Path,
    file: Path | None,
    configs: tuple[Config, ...],
    environ: Mapping[str, str],
) -> ProjectConfig:
    """Resolve a project; `configs` are the files that speak for it, the weakest first, each with its folder in `file`."""
    defaults, orchestrator, routing = Defaults(), Orchestrator(), Routing()
    profiles: dict[str, Profile] = {}
    notifications = Notifications()
    notifiers: dict[str, Notifier] = {}
    for config in configs:
        defaults = overlay(defaults, config.defaults)
        orchestrator = overlay(orchestrator, config.orchestrator)
        routing = overlay(routing, config.notification_routing)
        notifications = overlay(notifications, config.notifications)
        profiles = _merged(profiles, config.agents)
        notifiers = _merged(notifiers, config.notifiers)
    settings = overlay(overlay(Project(), defaults), project)
    routing = overlay(routing, project.notification_routing)
    to = {p: settings.notifiers if (named := getattr(routing, p)) is None else named for p in PRIORITIES}
    told = dict(notifiers)
    for name in (*settings.notifiers, *(name for names in to.values() for name in names)):
        told.setdefault(notifier_name(name), _notifier(name))
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
        worktree_dir=_below(root, settings.worktree_dir, environ),
        branch_pattern=settings.branch_pattern,
        agent_rules=settings.agent_rules,
        agent_rules_file=_below(root, settings.agent_rules_file, environ),
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
        notifiers=told,
        notifications=notifications,
        routing={p: tuple(map(notifier_name, names)) for p, names in to.items()},
        quiet=next((config.quiet_hours for config in reversed(configs) if config.quiet_hours), None),
        plugins=tuple(_plugin_files(configs[-1], file, environ)),
        reactions=(*(config.reactions for config in configs), project.reactions),
    )


def agent_settings(project: ProjectConfig, name: str | None) -> AgentSettings:
    """What a profile, or else an agent, of that name comes to for a project; none: the project's own."""
    chosen = name or project.agent
    profile = project.profiles.get(chosen, Profile())
    profile_name = chosen if chosen in project.profiles else None
    own = project.profiles.get(project.agent, Profile()).tool or project.agent
    tool = (profile.tool or own) if profile_name else chosen
    config = project.agent_config
    # A model is one agent's word: what the project says for its own agent means nothing to another.
    model = profile.model or (config.model if tool == own else None)
    described = profile.model_dump(include=_DESCRIBED & profile.model_fields_set, exclude_none=True)
    return AgentSettings(
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
        options={**(config.options if tool == own else {}), **profile.options, **described},
    )


def notifier_name(text: str) -> str:
    """What a notifier is called: an address is a secret, and has a name that tells only of its service."""
    if "://" not in text:
        return text
    return f"{text.partition('://')[0]}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def _notifier(text: str) -> Notifier:
    """A notifier that nothing is said of but its name, or the address that it is."""
    return Notifier.model_validate({"plugin": "apprise", "url": text} if "://" in text else {"plugin": text})


def _merged(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    return {**base, **{key: overlay(base[key], value) if key in base else value for key, value in top.items()}}


def _below(root: Path, text: str | None, environ: Mapping[str, str]) -> Path | None:
    return None if text is None else Path(os.path.normpath(root / expand_user(text, environ)))


def _plugin_files(config: Config, file: Path | None, environ: Mapping[str, str]) -> list[Path]:
    return [file.parent / expand_user(entry.path, environ) for entry in config.plugins] if file else []
