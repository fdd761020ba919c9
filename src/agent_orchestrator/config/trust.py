"""What a configuration would run or open of the user's, in a form that can be shown, compared and trusted.

Every key of the models is listed in `KEYS`, either with why it needs no trust or as a `Power`: a value that runs something, passes
something of the user's to others, or has things done without a person. Trust is in content: it holds as long as the digest of all
powers stays the same. A power of an untrusted file is either removed (`harmless`), or stays and is refused where it would be used
(`guarded`): if a check were removed instead, a change could be merged unchecked. Which digests are trusted is recorded by the daemon.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel

from agent_orchestrator.base.files.safe import LONGEST, read_plain
from agent_orchestrator.config import model as m
from agent_orchestrator.config.detection.repository import parse_remote, remote
from agent_orchestrator.config.load import BUILT_IN, Loaded, expand_user
from agent_orchestrator.config.merge import rules
from agent_orchestrator.errors import ConfigError

_UNATTENDED_ACTIONS = ("hold", "spawn")
"""Actions of rules that concern more than one session that a person started. In another person's repository, the author of the rules
also writes its issues.
"""
_SCRIPT_COMMAND = re.compile(r"\[(?:\s|\{\{.*?\}\})*\[", re.DOTALL)
"""What the scripted agent, `demo`, obeys in a message, whatever a template puts between the brackets."""
_APPROVED = "approved-and-green"
"""The trigger that requires a person's approval: a merge by any other trigger was not seen by a person."""
_CONDITION_FIELDS = {"trigger", "auto", "condition", "approval_after", "agent"}
_PRESENTATION_FIELDS = {"message", "priority", "include_summary", "strategy", "delete_after"}
"""Fields of a rule that say how something is reported or merged, not when what is done."""
RANKS = ("plan", "default", "auto-edit", "full")
"""Permissions, from the least to the most."""
_GITHUB_ADDRESS = re.compile(r"(https://|git@|ssh://git@)github\.com[/:][\w./~-]*", re.IGNORECASE)
_ISSUE_SCOPES = ("project", "projectKey", "team", "teamId")
"""Options that select which issues a token opens in Jira or Linear. A checkout cannot show that these belong to it."""
_SAFE_VARIABLES = re.compile(r"(APP|FEATURE|TEST)_\w+|CI|DEBUG|FORCE_COLOR|LOG_LEVEL|NO_COLOR|PORT")
"""Names of variables that by convention only the repository's own programs read. Any other may matter: `PS0` runs in the shell."""
_STEERING = re.compile(
    r".*(CMD|CONTENT|PERMISSIONS?|ALLOW_ALL|HOOKS?|CONF|RC|INIT|ALIASES|_RSH|_SSH|LAUNCHER|WRAPPER|COMPILER|URLS|HEADERS|PLUGINS?|SANDBOX"
    r"|COMMAND|EDITOR|PAGER|ASKPASS|URL|URI|HOST|SERVER|ENDPOINT|BASE|PROXY|REGISTRY|CONFIG|HOME|DIR|PATH|FILE|CERTS?|CA|BUNDLE|KEY"
    r"|TOKEN|SECRET|PASSWORD|OPTIONS|OPTS|FLAGS|ARGS|PRELOAD)",
    re.IGNORECASE,
)
"""Endings that mark a name as dangerous: such variables decide which programs run, what they load, and which hosts they use."""


@dataclass(frozen=True, slots=True)
class Around:
    """The settings that the powers of a file are compared with."""

    folder: Path = field(default_factory=Path)
    """The folder of the file."""
    own: m.Config = field(default_factory=m.Config)
    """The user's own file."""
    environ: Mapping[str, str] = field(default_factory=dict)
    defaults: m.Defaults = field(default_factory=m.Defaults)
    """The defaults of the file itself."""
    profiles: Mapping[str, m.Profile] = field(default_factory=dict)
    """The profiles of the file itself."""
    reactions: Mapping[str, m.Reaction] = field(default_factory=dict)
    """The reactions of the file itself, for all its projects."""
    of_projects: Sequence[Mapping[str, m.Reaction]] = ()
    """The reactions of its projects; those of a profile are merged over them."""


Find = Callable[[Any, Any, Around], Any]
"""Takes a value, its section and the surrounding settings; returns the part of the value that needs trust, or something falsy."""


@dataclass(frozen=True, slots=True)
class Power:
    """A key that needs trust."""

    why: str
    find: Find = lambda value, _section, _around: value
    when: str = ""
    """Which of its values need it; "": all of them."""
    guarded: bool = False
    """It stays in force, and is refused where it would be used until it is trusted."""
    waits: bool = True
    """Whether starting a session waits for trust in it; otherwise the session starts without it."""


# -- which values ------------------------------------------------------------------------------------------------------


def _third_party_plugin(slot: str) -> Find:
    """Return a power for a plugin that does not come with the product."""

    def find_power(value: Any, _section: Any, around: Around) -> Any:
        name = value.plugin if isinstance(value, m.Plugin) else value
        own = getattr(around.own.defaults, slot)
        allowed = [*BUILT_IN.get(slot, ("auto",)), own.plugin if isinstance(own, m.Plugin) else own]
        return None if name in allowed else name

    return find_power


def _weaker_agent(value: Any, section: Any, around: Around) -> Any:
    """Return an agent that is not built in, or one with fewer walls than the user's agents or than the profile that the user would get
    here: only the user may choose such an agent.
    """
    own, file_profile = around.own.agents.get(value), around.profiles.get(value)
    is_weaker = (own and _is_less_restricted(own, around)) or _has_fewer_walls(
        own or file_profile or m.Profile(), _usual_profile(section, around), around
    )
    return value if is_weaker else None if own or file_profile else _third_party_plugin("agent")(value, section, around)


def _usual_profile(section: Any, around: Around) -> m.Profile | None:
    """Return the profile that the user's own file selects for this section, or None if it selects no profile."""
    own = around.own.orchestrator
    own_section = own.coordinator if isinstance(section, m.Coordinator) else own.planner
    profile_name = own_section.agent if isinstance(section, type(own_section)) else None
    return around.own.agents.get(profile_name or around.own.defaults.agent)


def _has_fewer_walls(profile: m.Profile, usual: m.Profile | None, around: Around) -> bool:
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


def _effective_walls(profile: m.Profile, around: Around) -> tuple[str, str]:
    """Return runtime and permissions of a profile if only the user's own file adds defaults."""
    defaults = around.own.defaults
    return profile.runtime or defaults.runtime, profile.permissions or defaults.agent_config.permissions


def _is_less_restricted(profile: m.Profile, around: Around) -> bool:
    leaves_container = around.own.defaults.runtime == "docker" and profile.runtime not in (None, "docker")
    return leaves_container or bool(_wider_permissions(profile.permissions, profile, around))


def _weaker_runtime(value: Any, section: Any, around: Around) -> Any:
    """Return the runtime if it is not built in, or is no container although the user's default is one."""
    return (
        value
        if around.own.defaults.runtime == "docker" != value
        else _third_party_plugin("runtime")(value, section, around)
    )


def _forge_powers(slot: str) -> Find:
    """Return a power for what sends a token of the user's to a host of the file's choice, what the token opens there, and the secret of
    a webhook.
    """

    def find_power(value: Any, section: Any, around: Around) -> Any:
        options, own = value.options, getattr(around.own.defaults, slot)
        hosts = [host for host in _hosts_of(value) if _hosts_of(own) or not _GITHUB_ADDRESS.fullmatch(host)]
        secrets = {key: options[key] for key in ("token", "email", "fork", "webhook") if options.get(key)}
        secrets |= {
            key: options[key] for key in _ISSUE_SCOPES if options.get(key) and options[key] != own.options.get(key)
        }
        repo = _value_if_foreign(str(options["repo"]), section, around, value) if options.get("repo") else None
        return _drop_empty(
            {"plugin": _third_party_plugin(slot)(value, section, around), "hosts": hosts, "repo": repo, **secrets}
        )

    return find_power


def _terminal_powers(value: Any, section: Any, around: Around) -> Any:
    """Return a plugin that is not built in, and all options of a built-in one, which can name commands."""
    return _drop_empty({"plugin": _third_party_plugin("terminal")(value, section, around), **value.options})


def _foreign_repository(value: Any, section: Any, around: Around) -> Any:
    """Return a repository that the checkout did not come from, or one at a host that the user's tokens are not for."""
    sections = (section, around.defaults, around.own.defaults)
    forge, tracker = _first_set("scm", *sections) or m.Plugin(), _first_set("tracker", *sections)
    forges = (forge, tracker) if tracker and tracker.plugin != "auto" else (forge,)
    return None if value is None else _value_if_foreign(value, section, around, *forges)


def _value_if_foreign(value: str, section: Any, around: Around, *forges: m.Plugin) -> str | None:
    """Return the value if it names another repository than the checkout's origin, or a host that tokens are not for."""
    root = _resolve_path(around.folder, getattr(section, "path", None) or ".", around)
    origin, host = remote(root) if root.is_dir() else (None, None)
    given_name = parse_remote(value)[0] if "://" in value or "@" in value else value
    if origin and given_name and given_name.casefold() != origin.casefold():
        return value
    return value if _names_other_host(value) or (host and _has_unknown_host(host, forges, around)) else None


def _has_unknown_host(host: str, forges: Sequence[m.Plugin], around: Around) -> bool:
    """Return whether the checkout came from a host other than the ones at which its name is looked up.

    A host without a dot is an alias in the user's SSH configuration and is accepted.
    """
    own = (around.own.defaults.scm, around.own.defaults.tracker)
    for forge in forges:
        default_host = "gitlab.com" if forge.plugin == "gitlab" else "github.com"
        host_names = [
            urlsplit(address if "://" in address else f"//{address}").hostname or ""
            for plugin in (forge, *own)
            for address in _hosts_of(plugin)
        ]
        known_hosts = {name.removeprefix("api.") for name in (default_host, *host_names)}
        if "." in host and not {host, host.removeprefix("ssh."), host.removeprefix("altssh.")} & known_hosts:
            return forge.plugin in ("auto", "github", "gitlab")
    return False


def _hosts_of(forge: m.Plugin) -> list[str]:
    """Return the hosts that a forge or tracker plugin's options name."""
    addresses = [str(forge.options[key]) for key in ("apiUrl", "url", "host") if forge.options.get(key)]
    return list(dict.fromkeys(addresses))


def _resolve_path(folder: Path, text: str, around: Around) -> Path:
    try:
        return folder / expand_user(text, around.environ)
    except ConfigError:  # the home folder of an unknown user
        return Path("/") / text


def _names_other_host(repo: str) -> bool:
    """Return whether a repository's name includes a host, and that host is not GitHub."""
    owner, _, rest = repo.partition("/")
    has_host = ":" in repo or "@" in repo or ("." in owner and ("/" in rest or not rest))
    return has_host and not _GITHUB_ADDRESS.fullmatch(repo)


def _path_outside(value: Any, _section: Any, around: Around) -> Any:
    """Return a path if it leads out of the folder of the file."""
    if value is None:
        return None
    root = around.folder.resolve()
    path = _resolve_path(root, value, around).resolve()
    return None if path.is_relative_to(root) else value


def _wider_permissions(value: Any, _section: Any, around: Around) -> Any:
    """Return permissions above those in the user's own file, or `full`."""
    own = around.own.defaults.agent_config.permissions
    return value if value == "full" or (value and RANKS.index(value) > RANKS.index(own)) else None


def _wider_coordinator_permissions(value: Any, _section: Any, around: Around) -> Any:
    return value if RANKS.index(value) > RANKS.index(around.own.orchestrator.coordinator.permissions) else None


def _more_sessions(value: Any, _section: Any, around: Around) -> Any:
    own = around.own.orchestrator.coordinator
    return value if "max_sessions" in own.model_fields_set and value > own.max_sessions else None


def _only(*values: Any) -> Find:
    return lambda value, _section, _around: value if value in values else None


def _rule_powers(value: Any, section: Any, around: Around) -> Any:
    """Return what rules would run, start, merge unseen or hold back for all projects.

    What else they do concerns only the project: merging what a person approved and checks passed, and holding back strangers.
    """
    return _drop_empty(
        {name: _rule_action(name, rule) or _changed_rule(name, rule, section, around) for name, rule in value.items()}
    )


def _rule_action(name: str, rule: m.Reaction) -> Any:
    """Return what a rule runs, starts, merges or holds, with its conditions: without asking, for which label, by which agent."""
    what = rule.command or (rule.action if _acts_unattended(name, rule) else None) or _scripted_message(rule)
    when = rule.model_dump(mode="json", by_alias=True, include=rule.model_fields_set & _CONDITION_FIELDS)
    return [what, when] if what and when else what


def _acts_unattended(name: str, rule: m.Reaction) -> bool:
    """Return whether a rule starts or holds something unattended, or merges what no person approved."""
    return rule.action in _UNATTENDED_ACTIONS or (rule.action == "merge" and (rule.trigger or name) != _APPROVED)


def _scripted_message(rule: m.Reaction) -> str | None:
    return rule.message if rule.message and _SCRIPT_COMMAND.search(rule.message) else None


def _changed_rule(name: str, rule: m.Reaction, section: Any, around: Around) -> dict[str, Any]:
    """Return what a rule changes in a rule below it that runs, starts, merges or holds something: when that is done, and by which agent.

    Rules below are the user's and the default ones; for a project or a profile also the file's. A change of the rule that stops a
    session which spent a budget of the user's counts too.
    """
    levels = (around.own.reactions, {} if isinstance(section, m.Config) else around.reactions)
    project_reactions = around.of_projects if isinstance(section, m.Profile) else ()
    own_budgets = (around.own.orchestrator.budget, *(profile.budget for profile in around.own.agents.values()))
    has_budget = any(budget.model_fields_set for budget in own_budgets)
    return {
        key: value
        for reactions in project_reactions or ({},)
        for key, value in _overridden_fields(name, rule, (*levels, reactions), has_budget).items()
    }


def _overridden_fields(
    name: str, rule: m.Reaction, levels: Sequence[Mapping[str, m.Reaction]], has_budget: bool
) -> dict[str, Any]:
    """Return the fields of a rule that change what the rules in `levels` do under the same name."""
    below = [{name: level[name]} for level in levels if name in level]
    base = next((lower_rule for lower_rule in rules(*below) if lower_rule.name == name), None)
    stops = has_budget and base is not None and (base.trigger, base.action) == ("budget-exceeded", "stop")
    if base is None or not (base.command or base.action in (*_UNATTENDED_ACTIONS, "merge") or stops):
        return {}
    fields_set_below = {key for level in below for key in level[name].model_fields_set}
    unchanged = {key for key in ("action", "trigger", "auto") if getattr(rule, key) in (None, getattr(base, key))}
    widened = (
        rule.model_fields_set if stops else {"agent", "trigger", *(("action",) if rule.action == "command" else ())}
    )
    changed = (rule.model_fields_set & (fields_set_below | widened)) - _PRESENTATION_FIELDS - unchanged
    return rule.model_dump(mode="json", by_alias=True, include=changed)


def _risky_variables(value: Any, _section: Any, _around: Around) -> Any:
    """Return variables that can decide which programs run, and which hosts they use."""
    return {
        name: text for name, text in value.items() if not _SAFE_VARIABLES.fullmatch(name) or _STEERING.fullmatch(name)
    }


def _new_notifiers(value: Any, _section: Any, around: Around) -> Any:
    return [name for name in value if name not in ("desktop", *around.own.defaults.notifiers, *around.own.notifiers)]


def _new_routes(value: Any, section: Any, around: Around) -> Any:
    return _drop_empty(
        {level: _new_notifiers(getattr(value, level) or (), section, around) for level in type(value).model_fields}
    )


def _plugin_files(value: Any, _section: Any, _around: Around) -> Any:
    return [_drop_empty({"path": plugin.path, "name": plugin.name}) for plugin in value]


def _notifier_settings(value: Any, _section: Any, _around: Around) -> Any:
    return {name: notifier.model_dump(mode="json") for name, notifier in value.items()}


_FREE_AGENT = "what it reads, it could read in any file of the repository"
_LIMIT = "a limit; those of your own file hold too"
_OF_CHECKOUT = "files of the checkout itself, never from outside it"
_NAME = "a name that is shown"
_HOW = "how something is done that is allowed otherwise"
_DAEMON = "counts only in your own file, or in one that you started the daemon with"
_SECTION = ""
"""The key is a section: its own keys are listed separately."""

_ENV = Power(
    "may decide which programs run, or whom they ask",
    _risky_variables,
    "all names but `APP_…`, `FEATURE_…`, `TEST_…`, `CI`, `DEBUG`, `PORT`, `LOG_LEVEL`, `NO_COLOR` and `FORCE_COLOR`;"
    " of these too such as end in `…_URL`, `…_PATH` or `…_CMD`",
)
_RULES = Power(
    "runs, starts agents by itself, lands what nobody approved, holds your account for all projects, or spends more than you let it",
    _rule_powers,
    "`command`, `action: spawn`, `action: hold`, `action: merge` by another trigger than `approved-and-green`, a message with"
    " `[[…]]`, or another trigger, condition and the like of a rule of yours that does so, or of `budget-exceeded` where your own"
    " file has a budget",
)
_WHO = Power("tells somebody else", _new_routes, "neither `desktop` nor one of yours", waits=False)

_FORGE = (
    "another host, a token, a webhook's secret, a `project` or `team` that your own file does not name, or not ours"
)

_DEFAULTS_KEYS: dict[str, str | Power] = {
    "runtime": Power(
        "code of others, or less of a wall than you want", _weaker_runtime, "not ours, or none where you have `docker`"
    ),
    "agent": Power(
        "code of others, or fewer walls than your agents have",
        _weaker_agent,
        "no agent of ours and no profile, one of yours that asks less or is no container, or whatever has fewer walls than the profile"
        " that your own file names there, or another one where that has a budget",
    ),
    "workspace": Power("code of others", _third_party_plugin("workspace"), "not ours"),
    "tracker": Power("sends tokens, or opens issues of yours", _forge_powers("tracker"), _FORGE, guarded=True),
    "scm": Power("sends tokens, or opens issues of yours", _forge_powers("scm"), _FORGE, guarded=True),
    "notifiers": Power("tells somebody else", _new_notifiers, "neither `desktop` nor one of yours", waits=False),
    "terminal": Power(
        "runs on your screen", _terminal_powers, "not ours, or with options such as a `command`", waits=False
    ),
    "agent_config": _SECTION,
}
KEYS: Mapping[type[BaseModel], Mapping[str, str | Power]] = {
    m.Config: {
        "port": _DAEMON,
        "host": Power("opens the daemon", when="in a file that you started the daemon with"),
        "tls": Power("opens the daemon", when="in a file that you started the daemon with"),
        "database": Power("gives everything away", when="in a file that you started the daemon with"),
        "cluster": Power("runs elsewhere", when="in a file that you started the daemon with"),
        "power": _DAEMON,
        "defaults": _SECTION,
        "projects": _SECTION,
        "project": _SECTION,
        "agents": _SECTION,
        "orchestrator": _SECTION,
        "reactions": _RULES,
        "notifiers": Power("sends what happens somewhere", _notifier_settings, waits=False),
        "notification_routing": _WHO,
        "notifications": _SECTION,
        "quiet_hours": "when you are told",
        "plugins": Power("code: holds for the files' content too", _plugin_files),
    },
    m.Defaults: _DEFAULTS_KEYS,
    m.Project: {
        **_DEFAULTS_KEYS,
        "name": _NAME,
        "repo": Power(
            "pushes and comments there",
            _foreign_repository,
            "not the checkout's own remote, by its name and host",
            guarded=True,
        ),
        "path": Power("another repository of yours", _path_outside, "outside the folder in which the file lies"),
        "default_branch": "what lands there, lands by your word",
        "session_prefix": _NAME,
        "ci": Power("runs", lambda value, _s, _a: {name: check.command for name, check in value.items()}, guarded=True),
        "commands": Power("agents run it without asking"),
        "symlinks": _OF_CHECKOUT,
        "copy_": _OF_CHECKOUT,
        "sparse": _OF_CHECKOUT,
        "post_create": Power("runs", guarded=True),
        "red_base": "whether failures of the base branch hold a merge; no key lets through what is new",
        "ports": "numbers that agents are told",
        "env": _ENV,
        "worktree_dir": Power("writes there", _path_outside, "outside the folder in which the file lies"),
        "branch_pattern": _NAME,
        "agent_rules": _FREE_AGENT,
        "agent_rules_file": Power(
            "shows a file of yours to agents", _path_outside, "outside the folder in which the file lies"
        ),
        "trusted_authors": Power("lets strangers speak to agents", waits=False),
        "review": _SECTION,
        "fix": _SECTION,
        "budget": _LIMIT,
        "docker": _SECTION,
        "sandbox": Power("takes the walls away", _only("none"), "`none`"),
        "max_parallel_agents": _LIMIT,
        "coordinator": _SECTION,
        "notification_routing": _WHO,
        "reactions": _RULES,
    },
    m.Notifications: {
        **dict.fromkeys(("digest", "rate_limit", "repeat_after"), "how often you are told"),
        "url": Power("has links for you lead there", waits=False),
    },
    m.AgentConfig: {
        "model": _HOW,
        "permissions": Power("asks you less", _wider_permissions, "`full`, or more than your own file says"),
        "mode": _HOW,
        "mcp": "its own tools, for its own session",
    },
    m.Profile: {
        "tool": Power("code of others", _third_party_plugin("agent"), "not ours"),
        "role": _HOW,
        "runtime": Power("code of others, or less of a wall than you want", _weaker_runtime, "as in `defaults`"),
        "workspace": Power("code of others", _third_party_plugin("workspace"), "not ours"),
        "skills": _FREE_AGENT,
        "filters": _SECTION,
        "model": _HOW,
        "permissions": Power("asks you less", _wider_permissions, "`full`, or more than your own file says"),
        "mode": _HOW,
        "rules": _FREE_AGENT,
        "env": _ENV,
        "account": _NAME,
        "max_parallel_agents": _LIMIT,
        "budget": _LIMIT,
        "reactions": _RULES,
        "command": Power("runs", guarded=True),
        "prompt": _HOW,
        "resume": Power("runs", guarded=True),
        "screen": Power(
            "has the daemon match patterns, which may take without end",
            lambda value, _s, _a: value.model_dump(exclude_none=True),
        ),
        "script": Power("runs", guarded=True),
        "options": Power("arguments and settings of programs"),
    },
    m.Docker: {
        "image": Power("gets what your agent logs in with", guarded=True),
        "dockerfile": Power("is built: holds for the file's content too", guarded=True),
        "network": Power("reaches your machine", _only("host"), "`host`", guarded=True),
        "allow": Power("may be told what the agent knows", guarded=True),
        "cpus": _LIMIT,
        "memory": _LIMIT,
        "mounts": Power("shows files of yours to agents", guarded=True),
        "engine": _HOW,
    },
    m.Coordinator: {
        "agent": Power("code of others, or fewer walls than your agents have", _weaker_agent, "as in `defaults`"),
        "auto": Power("starts by itself", _only(True), "`true`"),
        "model": _HOW,
        "permissions": Power(
            "asks you less", _wider_coordinator_permissions, "more than `default`, or than your own file says"
        ),
        "rules": _FREE_AGENT,
        "may": Power("decides for you"),
        "max_sessions": Power("starts more than you let it", _more_sessions, "more than your own file says"),
        "digest": _HOW,
        "conversation": _HOW,
    },
    m.Orchestrator: {
        "max_parallel_agents": _LIMIT,
        "auto_assign": Power("starts agents by itself", _only(True), "`true`"),
        "budget": _LIMIT,
        "coordinator": _SECTION,
        "planner": _SECTION,
    },
    m.Planner: {
        "agent": Power("code of others, or fewer walls than your agents have", _weaker_agent, "as in `defaults`"),
        **dict.fromkeys(("model", "max_tasks", "attempts", "timeout"), _HOW),
    },
    m.Review: {
        "max_rounds": _LIMIT,
        "approval": Power("an agent's approval is enough", _only("agent"), "`agent`", waits=False),
    },
    m.Fix: {"commands": Power("runs", guarded=True), "timeout": _LIMIT, "parallel": _LIMIT},
    m.Filters: dict.fromkeys(("labels", "exclude_labels", "languages", "paths"), "which work it takes"),
}
"""The keys of each section: why one needs no trust, or the power that it is."""


# -- finding and taking out --------------------------------------------------------------------------------------------


def powers(loaded: Loaded, around: Around | None = None, *, waits: bool = False) -> dict[str, Any]:
    """Return everything that a file would run or open; with `waits`, only what has sessions wait for trust."""
    loaded = loaded.bare or loaded
    around = _with_file_sections(loaded, around)
    all_powers = _section_powers(loaded.config, around, waits)
    for name in sorted(_daemon_keys()):
        all_powers.pop(name, None)
    return _drop_empty({**all_powers, "variables": list(loaded.variables)})


def _with_file_sections(loaded: Loaded, around: Around | None) -> Around:
    config = loaded.config
    projects = [*config.projects.values(), *([config.project] if config.project else [])]
    return replace(
        around or Around(loaded.path.absolute().parent),
        defaults=config.defaults,
        profiles=config.agents,
        reactions=config.reactions,
        of_projects=tuple(project.reactions for project in projects),
    )


def walls(loaded: Loaded, own: m.Config | None = None) -> dict[str, bool]:
    """Return the walls that a file could put around agents, and whether it does.

    With `own`, the user's own file counts where the file sets nothing.
    """
    config = (loaded.bare or loaded).config
    defaults = [config.defaults, *([own.defaults] if own else [])]
    sections = config.projects or {"": config.project or m.Project()}
    projects = {
        f"projects.{name}.": {
            **_walls_of((config.agents.get(str(_first_set("agent", project, *defaults)), project), project, *defaults)),
            "sandbox: bwrap": project.sandbox == "bwrap",
        }
        for name, project in sections.items()
    }
    weakest = {
        wall: all(held_walls[wall] for held_walls in projects.values()) for wall in next(iter(projects.values()))
    }
    profiles = {
        f"agents.{name}.": {
            wall: is_held if _sets_wall(wall, profile) else weakest[wall]
            for wall, is_held in _walls_of((profile,)).items()
        }
        for name, profile in config.agents.items()
    }
    walls_by_section = {**projects, **profiles}
    everywhere = {wall: all(held_walls.get(wall, True) for held_walls in walls_by_section.values()) for wall in weakest}
    reported = walls_by_section if config.projects else profiles
    return {
        f"{section_path}{wall}": is_held
        for section_path, held_walls in {"": everywhere, **reported}.items()
        for wall, is_held in held_walls.items()
    }


def _walls_of(sections: Sequence[BaseModel]) -> dict[str, bool]:
    """Return the walls other than a sandbox, each from the first of these sections that sets it."""
    runtime, permissions = _first_set("runtime", *sections), _permissions(*sections)
    rank = RANKS.index(permissions) if permissions else len(RANKS)
    return {
        "runtime: docker": runtime == "docker",
        "permissions: plan": rank == 0,
        "permissions: default": rank <= 1,
    }


def _sets_wall(wall: str, profile: m.Profile) -> bool:
    return bool(getattr(profile, wall.partition(":")[0]))


def _permissions(*sections: BaseModel) -> Any:
    return _first_set("permissions", *(getattr(section, "agent_config", section) for section in sections))


def _first_set(name: str, *sections: BaseModel) -> Any:
    """Return the value of the first section that sets a non-empty one, or None."""
    set_values = (getattr(section, name) for section in sections if name in section.model_fields_set)
    return next((value for value in set_values if value), None)


def wall_digests(wall: str, file: Path) -> tuple[str, str]:
    """Return the digest of a wall that a trusted file of that folder has, and the digest of a person's trust that it may be missing."""
    return digest({"wall": wall}, file.parent), digest({"without": wall}, file.parent)


def started_with(loaded: Loaded) -> dict[str, Any]:
    """Return what a file would decide for the daemon as a whole, besides its port."""
    loaded = loaded.bare or loaded
    dumped = loaded.config.model_dump(mode="json", by_alias=True, include=_daemon_keys(), exclude_unset=True)
    return _drop_empty(dumped)


def digest(found: Mapping[str, Any], file: Path | None = None) -> str:
    """Return a stable digest of powers, or "" if there are none.

    With `file`, the digest is for that path only: `make test` does something else in another repository.
    """
    if not found:
        return ""
    found = found if file is None else {"file": str(file.absolute()), "powers": found}
    text = json.dumps(found, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def harmless(loaded: Loaded, around: Around | None = None) -> m.Config:
    """Return the configuration without its powers, except guarded ones, which are refused where they are used."""
    loaded = loaded.bare or loaded
    around = _with_file_sections(loaded, around)
    config = _without_powers(loaded.config, around, may_report=not loaded.variables)
    assert isinstance(config, m.Config)
    return config


def code(loaded: Loaded, around: Around) -> list[Path]:
    """Return the files of code that a file names. Trust in the file includes trust in their content."""
    config = loaded.config
    paths = [_resolve_path(around.folder, entry.path, around) for entry in config.plugins]
    projects = [*config.projects.values(), *([config.project] if config.project else [])]
    paths += [
        _resolve_path(around.folder, entry.path or ".", around) / entry.docker.dockerfile
        for entry in projects
        if entry.docker.dockerfile
    ]
    return list(dict.fromkeys(paths))


def content(path: Path) -> str:
    """Return a digest of a code file with its path; a file that cannot be read has one too."""
    return file_digest(path, _read(path))


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, as other programs print it."""
    return hashlib.sha256(_read(path)).hexdigest()


def _read(path: Path) -> bytes:
    """Return the content of a file, or the error's name. A file too long for code gets random bytes: its digest is never trusted."""
    try:
        real = path.resolve()
        return os.urandom(16) if real.is_file() and real.stat().st_size > LONGEST else read_plain(real)
    except (OSError, ValueError, RuntimeError) as error:
        return type(error).__name__.encode()


def file_digest(path: Path, data: bytes) -> str:
    """Return a digest of a file with this path and content."""
    return hashlib.sha256(f"{path}\0".encode(errors="surrogatepass") + hashlib.sha256(data).digest()).hexdigest()


def _daemon_keys() -> set[str]:
    return {name for name, entry in KEYS[m.Config].items() if isinstance(entry, Power) and "daemon" in entry.when}


def _table(section: BaseModel) -> Mapping[str, str | Power]:
    return KEYS.get(type(section), {})


def _alias(section: BaseModel, name: str) -> str:
    return type(section).model_fields[name].alias or name


def _section_powers(section: BaseModel, around: Around, waits: bool) -> dict[str, Any]:
    """Return the powers of a section and of the sections in it."""
    all_powers: dict[str, Any] = {}
    for name in type(section).model_fields:
        if name not in section.model_fields_set:
            continue
        value, entry = getattr(section, name), _table(section).get(name, _SECTION)
        if isinstance(entry, Power):
            if entry.waits or not waits:
                all_powers[_alias(section, name)] = _to_json(entry.find(value, section, around))
        elif entry is _SECTION:
            inner = _drop_empty(
                {
                    key: _profile_override(key, child, around) or _section_powers(child, around, waits)
                    for key, child in _sections(value)
                }
            )
            all_powers[_alias(section, name)] = inner.get("", inner)
    if isinstance(section, m.AgentConfig) and section.options:
        all_powers["options"] = section.options
    return _drop_empty(all_powers)


def _profile_override(name: str, section: BaseModel, around: Around) -> dict[str, Any]:
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


def _sections(value: Any) -> Iterator[tuple[str, BaseModel]]:
    if isinstance(value, BaseModel):
        yield "", value
    elif isinstance(value, Mapping):
        yield from ((str(key), child) for key, child in value.items() if isinstance(child, BaseModel))


def _to_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value


def _without_powers(section: BaseModel, around: Around, may_report: bool) -> BaseModel:
    """Return a section without the powers in it that are not guarded.

    `may_report`: its reactions may send messages, because no variables were filled in.
    """
    field_values: dict[str, Any] = {}
    set_fields = set(section.model_fields_set)
    for name, info in type(section).model_fields.items():
        value, entry = getattr(section, name), _table(section).get(name, _SECTION)
        if name not in set_fields:
            field_values[name] = value
        elif not isinstance(entry, Power):
            field_values[name] = _children_without_powers(value, around, may_report) if entry is _SECTION else value
        elif entry.find is _rule_powers and may_report:
            field_values[name] = {
                key: _reporting_rule(key, rule)
                for key, rule in value.items()
                if not _changed_rule(key, rule, section, around)
            }
        elif isinstance(value, m.Plugin) and entry.guarded:
            field_values[name] = (
                m.Plugin() if entry.find(value, section, around).get("plugin") else _without_webhook(value)
            )
        elif entry.guarded or not (entry.find is _rule_powers or entry.find(value, section, around)):
            field_values[name] = value
        else:
            field_values[name] = info.get_default(call_default_factory=True)
            set_fields.discard(name)
    return type(section).model_construct(set_fields, **field_values)


def _children_without_powers(value: Any, around: Around, may_report: bool) -> Any:
    if isinstance(value, BaseModel):
        return _without_powers(value, around, may_report)
    if isinstance(value, Mapping):
        return {
            key: _without_powers(child, around, may_report) if isinstance(child, BaseModel) else child
            for key, child in value.items()
            if not (isinstance(child, BaseModel) and _profile_override(key, child, around))
        }
    return value


def _without_webhook(value: m.Plugin) -> m.Plugin:
    """Return a forge or tracker without its webhook secret, so that no webhook can be signed."""
    return m.Plugin(plugin=value.plugin, **{key: option for key, option in value.options.items() if key != "webhook"})


def _reporting_rule(name: str, rule: m.Reaction) -> m.Reaction:
    """Return a rule without what it would run; its default action remains."""
    fields = rule.model_fields_set - ({"message"} if _scripted_message(rule) else set())
    if rule.command or _acts_unattended(name, rule):
        fields -= {"auto", "action", "command", "agent", "timeout"}
    if fields == rule.model_fields_set:
        return rule
    return m.Reaction.model_construct(fields, **{key: getattr(rule, key) for key in fields})


def _drop_empty(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in parts.items() if value}


def table() -> str:
    """Return the table of every key that needs trust, and why, for the reference page."""
    rows = ["| section | key | needs trust | because it | before that |", "|---|---|---|---|---|"]
    for section, keys in KEYS.items():
        for name, entry in keys.items():
            is_in_defaults = section is m.Project and m.Defaults in KEYS and KEYS[m.Defaults].get(name) is entry
            if isinstance(entry, Power) and not is_in_defaults:
                consequence = "whoever would use it is refused" if entry.guarded else "it is as if it were not written"
                key = section.model_fields[name].alias or name
                rows.append(
                    f"| {section.__name__} | `{key}` | {entry.when or 'always'} | {entry.why} | {consequence} |"
                )
    rows.append(
        "| AgentConfig | any other key | always | arguments and settings of programs | it is as if it were not written |"
    )
    rows.append(
        "| anywhere | `${NAME}` | where NAME is set | hands a variable of yours to agents | sessions wait, reactions say nothing |"
    )
    return "\n".join(rows) + "\n"
