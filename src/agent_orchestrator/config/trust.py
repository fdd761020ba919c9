"""What a configuration would run, or open, of the user's: in a form that can be shown, compared and trusted.

Every key of the models stands in `KEYS`, either with why it needs no trust or as a `Power`: a value that runs something, hands something
of the user's to somebody, or has things done without a person. Trust holds for content: as long as the digest stays the same, no other
powers are used. A power of a file that nobody trusted is taken out (`harmless`), or stays and is refused where it would be used
(`guarded`): a check that vanished would let a change land unchecked. Who is trusted is the daemon's to say.
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

_BY_ITSELF = ("hold", "spawn")
"""What rules do that concerns more than a session that a person started. In a repository of somebody else's, whoever wrote it writes its
issues too."""
_SCRIPT = re.compile(r"\[(?:\s|\{\{.*?\}\})*\[", re.DOTALL)
"""What the scripted agent, `demo`, obeys in a message; whatever a template puts between the brackets."""
_APPROVED = "approved-and-green"
"""The trigger that a person's word has set off: what lands by any other, nobody has seen."""
_WHEN = {"trigger", "auto", "condition", "approval_after", "agent"}
_TEXTS = {"message", "priority", "include_summary", "strategy", "delete_after"}
"""What of a rule says how something is told or landed, not when what is done."""
RANKS = ("plan", "default", "auto-edit", "full")
"""Permissions, the least first."""
_OF_GITHUB = re.compile(r"(https://|git@|ssh://git@)github\.com[/:][\w./~-]*", re.IGNORECASE)
_PLACES = ("project", "projectKey", "team", "teamId")
"""Which of the issues a token opens that are at Jira or Linear: of these no checkout says that they are its own."""
_PLAIN = re.compile(r"(APP|FEATURE|TEST)_\w+|CI|DEBUG|FORCE_COLOR|LOG_LEVEL|NO_COLOR|PORT")
"""Names of variables that by custom only the repository's own programs read. Nobody knows all the others: `PS0` runs in your shell."""
_STEERING = re.compile(
    r".*(CMD|CONTENT|PERMISSIONS?|ALLOW_ALL|HOOKS?|CONF|RC|INIT|ALIASES|_RSH|_SSH|LAUNCHER|WRAPPER|COMPILER|URLS|HEADERS|PLUGINS?|SANDBOX"
    r"|COMMAND|EDITOR|PAGER|ASKPASS|URL|URI|HOST|SERVER|ENDPOINT|BASE|PROXY|REGISTRY|CONFIG|HOME|DIR|PATH|FILE|CERTS?|CA|BUNDLE|KEY"
    r"|TOKEN|SECRET|PASSWORD|OPTIONS|OPTS|FLAGS|ARGS|PRELOAD)",
    re.IGNORECASE,
)
"""What the names among these end in that decide which programs run, what they load, and whom they ask or tell."""


@dataclass(frozen=True, slots=True)
class Around:
    """What the powers of a file are measured by."""

    folder: Path = field(default_factory=Path)
    """Where the file lies."""
    own: m.Config = field(default_factory=m.Config)
    """The user's own file."""
    environ: Mapping[str, str] = field(default_factory=dict)
    defaults: m.Defaults = field(default_factory=m.Defaults)
    """The file's own."""
    profiles: Mapping[str, m.Profile] = field(default_factory=dict)
    """The file's own."""
    reactions: Mapping[str, m.Reaction] = field(default_factory=dict)
    """The file's own, for all its projects."""
    of_projects: Sequence[Mapping[str, m.Reaction]] = ()
    """Those of its projects, which a profile's are laid over."""


Find = Callable[[Any, Any, Around], Any]
"""A value, the section it stands in and what is around → what of it is to be trusted; nothing: nothing."""


@dataclass(frozen=True, slots=True)
class Power:
    """A key that needs trust."""

    why: str
    find: Find = lambda value, _section, _around: value
    when: str = ""
    """Which of its values need it; nothing: all."""
    guarded: bool = False
    """It stays in force, and whatever would use it asks for trust first."""
    waits: bool = True
    """What starts waits for trust; otherwise it starts without."""


# -- which values ------------------------------------------------------------------------------------------------------


def _third(slot: str) -> Find:
    """A plugin that does not come with the product."""

    def find(value: Any, _section: Any, around: Around) -> Any:
        name = value.plugin if isinstance(value, m.Plugin) else value
        own = getattr(around.own.defaults, slot)
        known = [*BUILT_IN.get(slot, ("auto",)), own.plugin if isinstance(own, m.Plugin) else own]
        return None if name in known else name

    return find


def _agent(value: Any, section: Any, around: Around) -> Any:
    """No agent of ours, or one with fewer walls than the user's agents, or the one that he would have here: it is for his own word."""
    own, theirs = around.own.agents.get(value), around.profiles.get(value)
    less = (own and _less_walled(own, around)) or _barer(own or theirs or m.Profile(), _usual(section, around), around)
    return value if less else None if own or theirs else _third("agent")(value, section, around)


def _usual(section: Any, around: Around) -> m.Profile | None:
    """The profile that the user has for this where no other file speaks, if it is one."""
    own = around.own.orchestrator
    part = own.coordinator if isinstance(section, m.Coordinator) else own.planner
    named = part.agent if isinstance(section, type(part)) else None
    return around.own.agents.get(named or around.own.defaults.agent)


def _barer(profile: m.Profile, usual: m.Profile | None, around: Around) -> bool:
    """Has it fewer walls than the usual one puts up by itself, or is it another one than has a budget?"""
    if usual is None or profile is usual:
        return False
    if usual.budget.model_fields_set:
        return True
    walled, allowed = usual.runtime == "docker", usual.permissions
    runtime, permissions = _comes_to(profile, around)
    return (walled and runtime != "docker") or bool(allowed and RANKS.index(permissions) > RANKS.index(allowed))


def _comes_to(profile: m.Profile, around: Around) -> tuple[str, str]:
    """Runtime and permissions of a profile where only the user's own file says more."""
    defaults = around.own.defaults
    return profile.runtime or defaults.runtime, profile.permissions or defaults.agent_config.permissions


def _less_walled(profile: m.Profile, around: Around) -> bool:
    bare = around.own.defaults.runtime == "docker" and profile.runtime not in (None, "docker")
    return bare or bool(_more_than_own(profile.permissions, profile, around))


def _runtime(value: Any, section: Any, around: Around) -> Any:
    """One that is no container where the user wants one."""
    return value if around.own.defaults.runtime == "docker" != value else _third("runtime")(value, section, around)


def _forge(slot: str) -> Find:
    """Where a token of the user's would be sent because the file says so, what it would open there, and what a webhook is known by."""

    def find(value: Any, section: Any, around: Around) -> Any:
        given, own = value.options, getattr(around.own.defaults, slot)
        hosts = [one for one in _named(value) if _named(own) or not _OF_GITHUB.fullmatch(one)]
        held = {key: given[key] for key in ("token", "email", "fork", "webhook") if given.get(key)}
        held |= {key: given[key] for key in _PLACES if given.get(key) and given[key] != own.options.get(key)}
        repo = _other_repository(str(given["repo"]), section, around, value) if given.get("repo") else None
        return _filled({"plugin": _third(slot)(value, section, around), "hosts": hosts, "repo": repo, **held})

    return find


def _terminal(value: Any, section: Any, around: Around) -> Any:
    """One that is not ours, and whatever one of ours is told to run."""
    return _filled({"plugin": _third("terminal")(value, section, around), **value.options})


def _repo(value: Any, section: Any, around: Around) -> Any:
    """A repository that the checkout did not come from, or a host that tokens are not for."""
    sections = (section, around.defaults, around.own.defaults)
    forge, tracker = _first("scm", *sections) or m.Plugin(), _first("tracker", *sections)
    both = (forge, tracker) if tracker and tracker.plugin != "auto" else (forge,)
    return None if value is None else _other_repository(value, section, around, *both)


def _other_repository(value: str, section: Any, around: Around, *forges: m.Plugin) -> str | None:
    root = _at(around.folder, getattr(section, "path", None) or ".", around)
    origin, host = remote(root) if root.is_dir() else (None, None)
    written = parse_remote(value)[0] if "://" in value or "@" in value else value
    if origin and written and written.casefold() != origin.casefold():
        return value
    return value if _elsewhere(value) or (host and _from_elsewhere(host, forges, around)) else None


def _from_elsewhere(host: str, forges: Sequence[m.Plugin], around: Around) -> bool:
    """Did the checkout come from another host than its name is looked for at? One without a dot is a name that only your SSH knows."""
    own = (around.own.defaults.scm, around.own.defaults.tracker)
    for forge in forges:
        usual = "gitlab.com" if forge.plugin == "gitlab" else "github.com"
        named = [
            urlsplit(one if "://" in one else f"//{one}").hostname or ""
            for part in (forge, *own)
            for one in _named(part)
        ]
        known = {name.removeprefix("api.") for name in (usual, *named)}
        if "." in host and not {host, host.removeprefix("ssh."), host.removeprefix("altssh.")} & known:
            return forge.plugin in ("auto", "github", "gitlab")
    return False


def _named(forge: m.Plugin) -> list[str]:
    """The hosts that it names."""
    given = [str(forge.options[key]) for key in ("apiUrl", "url", "host") if forge.options.get(key)]
    return list(dict.fromkeys(given))


def _at(folder: Path, text: str, around: Around) -> Path:
    try:
        return folder / expand_user(text, around.environ)
    except ConfigError:  # nobody's home
        return Path("/") / text


def _elsewhere(repo: str) -> bool:
    """Does a repository's name say at which host it is, and is that not GitHub?"""
    first, _, rest = repo.partition("/")
    named = ":" in repo or "@" in repo or ("." in first and ("/" in rest or not rest))
    return named and not _OF_GITHUB.fullmatch(repo)


def _outside(value: Any, _section: Any, around: Around) -> Any:
    """A path that leads out of the folder in which the file lies."""
    if value is None:
        return None
    root = around.folder.resolve()
    path = _at(root, value, around).resolve()
    return None if path.is_relative_to(root) else value


def _more_than_own(value: Any, _section: Any, around: Around) -> Any:
    """More than the user's own file allows, or everything."""
    own = around.own.defaults.agent_config.permissions
    return value if value == "full" or (value and RANKS.index(value) > RANKS.index(own)) else None


def _more_than_coordinator(value: Any, _section: Any, around: Around) -> Any:
    return value if RANKS.index(value) > RANKS.index(around.own.orchestrator.coordinator.permissions) else None


def _more_sessions(value: Any, _section: Any, around: Around) -> Any:
    own = around.own.orchestrator.coordinator
    return value if "max_sessions" in own.model_fields_set and value > own.max_sessions else None


def _only(*values: Any) -> Find:
    return lambda value, _section, _around: value if value in values else None


def _rules(value: Any, section: Any, around: Around) -> Any:
    """What rules would run, start, land unseen or hold back for all projects. What else they do is the project's own affair: what a
    person approved lands, tested, and strangers are held back.
    """
    return _filled({name: _done(name, rule) or _moved(name, rule, section, around) for name, rule in value.items()})


def _done(name: str, rule: m.Reaction) -> Any:
    """What a rule runs, starts, lands or holds, with what it says on when: without asking, for which label, by which agent."""
    what = rule.command or (rule.action if _decides(name, rule) else None) or _script(rule)
    when = rule.model_dump(mode="json", by_alias=True, include=rule.model_fields_set & _WHEN)
    return [what, when] if what and when else what


def _decides(name: str, rule: m.Reaction) -> bool:
    """Does it start or hold something by itself, or land what nobody approved?"""
    return rule.action in _BY_ITSELF or (rule.action == "merge" and (rule.trigger or name) != _APPROVED)


def _script(rule: m.Reaction) -> str | None:
    return rule.message if rule.message and _SCRIPT.search(rule.message) else None


def _moved(name: str, rule: m.Reaction, section: Any, around: Around) -> dict[str, Any]:
    """What it changes of a rule below it (the user's, a default one, of a project or a profile also the file's) that runs, starts,
    lands or holds something: when that is done, and by whom; or that stops whoever spent a budget of the user's.
    """
    levels = (around.own.reactions, {} if isinstance(section, m.Config) else around.reactions)
    ways = around.of_projects if isinstance(section, m.Profile) else ()
    own = (around.own.orchestrator.budget, *(one.budget for one in around.own.agents.values()))
    spends = any(budget.model_fields_set for budget in own)
    return {key: value for way in ways or ({},) for key, value in _over(name, rule, (*levels, way), spends).items()}


def _over(name: str, rule: m.Reaction, levels: Sequence[Mapping[str, m.Reaction]], spends: bool) -> dict[str, Any]:
    below = [{name: level[name]} for level in levels if name in level]
    base = next((one for one in rules(*below) if one.name == name), None)
    stops = spends and base is not None and (base.trigger, base.action) == ("budget-exceeded", "stop")
    if base is None or not (base.command or base.action in (*_BY_ITSELF, "merge") or stops):
        return {}
    said = {key for level in below for key in level[name].model_fields_set}
    same = {key for key in ("action", "trigger", "auto") if getattr(rule, key) in (None, getattr(base, key))}
    widened = (
        rule.model_fields_set if stops else {"agent", "trigger", *(("action",) if rule.action == "command" else ())}
    )
    given = (rule.model_fields_set & (said | widened)) - _TEXTS - same
    return rule.model_dump(mode="json", by_alias=True, include=given)


def _steering(value: Any, _section: Any, _around: Around) -> Any:
    """Variables that may decide which programs run, and whom they ask."""
    return {name: text for name, text in value.items() if not _PLAIN.fullmatch(name) or _STEERING.fullmatch(name)}


def _told(value: Any, _section: Any, around: Around) -> Any:
    return [name for name in value if name not in ("desktop", *around.own.defaults.notifiers, *around.own.notifiers)]


def _routed(value: Any, section: Any, around: Around) -> Any:
    return _filled({level: _told(getattr(value, level) or (), section, around) for level in type(value).model_fields})


def _code(value: Any, _section: Any, _around: Around) -> Any:
    return [_filled({"path": one.path, "name": one.name}) for one in value]


def _where_told(value: Any, _section: Any, _around: Around) -> Any:
    return {name: one.model_dump(mode="json") for name, one in value.items()}


_FREE_AGENT = "what it reads, it could read in any file of the repository"
_LIMIT = "a limit; those of your own file hold too"
_OF_CHECKOUT = "files of the checkout itself, never from outside it"
_NAME = "a name that is shown"
_HOW = "how something is done that is allowed otherwise"
_DAEMON = "counts only in your own file, or in one that you started the daemon with"
_INNER = ""
"""A section: its own keys tell."""

_ENV = Power(
    "may decide which programs run, or whom they ask",
    _steering,
    "all names but `APP_…`, `FEATURE_…`, `TEST_…`, `CI`, `DEBUG`, `PORT`, `LOG_LEVEL`, `NO_COLOR` and `FORCE_COLOR`;"
    " of these too such as end in `…_URL`, `…_PATH` or `…_CMD`",
)
_RULES = Power(
    "runs, starts agents by itself, lands what nobody approved, holds your account for all projects, or spends more than you let it",
    _rules,
    "`command`, `action: spawn`, `action: hold`, `action: merge` by another trigger than `approved-and-green`, a message with"
    " `[[…]]`, or another trigger, condition and the like of a rule of yours that does so, or of `budget-exceeded` where your own"
    " file has a budget",
)
_WHO = Power("tells somebody else", _routed, "neither `desktop` nor one of yours", waits=False)

_FORGE = (
    "another host, a token, a webhook's secret, a `project` or `team` that your own file does not name, or not ours"
)

_STARTED: dict[str, str | Power] = {
    "runtime": Power(
        "code of others, or less of a wall than you want", _runtime, "not ours, or none where you have `docker`"
    ),
    "agent": Power(
        "code of others, or fewer walls than your agents have",
        _agent,
        "no agent of ours and no profile, one of yours that asks less or is no container, or whatever has fewer walls than the profile"
        " that your own file names there, or another one where that has a budget",
    ),
    "workspace": Power("code of others", _third("workspace"), "not ours"),
    "tracker": Power("sends tokens, or opens issues of yours", _forge("tracker"), _FORGE, guarded=True),
    "scm": Power("sends tokens, or opens issues of yours", _forge("scm"), _FORGE, guarded=True),
    "notifiers": Power("tells somebody else", _told, "neither `desktop` nor one of yours", waits=False),
    "terminal": Power("runs on your screen", _terminal, "not ours, or with options such as a `command`", waits=False),
    "agent_config": _INNER,
}
KEYS: Mapping[type[BaseModel], Mapping[str, str | Power]] = {
    m.Config: {
        "port": _DAEMON,
        "host": Power("opens the daemon", when="in a file that you started the daemon with"),
        "tls": Power("opens the daemon", when="in a file that you started the daemon with"),
        "database": Power("gives everything away", when="in a file that you started the daemon with"),
        "cluster": Power("runs elsewhere", when="in a file that you started the daemon with"),
        "power": _DAEMON,
        "defaults": _INNER,
        "projects": _INNER,
        "project": _INNER,
        "agents": _INNER,
        "orchestrator": _INNER,
        "reactions": _RULES,
        "notifiers": Power("sends what happens somewhere", _where_told, waits=False),
        "notification_routing": _WHO,
        "notifications": _INNER,
        "quiet_hours": "when you are told",
        "plugins": Power("code: holds for the files' content too", _code),
    },
    m.Defaults: _STARTED,
    m.Project: {
        **_STARTED,
        "name": _NAME,
        "repo": Power(
            "pushes and comments there", _repo, "not the checkout's own remote, by its name and host", guarded=True
        ),
        "path": Power("another repository of yours", _outside, "outside the folder in which the file lies"),
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
        "worktree_dir": Power("writes there", _outside, "outside the folder in which the file lies"),
        "branch_pattern": _NAME,
        "agent_rules": _FREE_AGENT,
        "agent_rules_file": Power(
            "shows a file of yours to agents", _outside, "outside the folder in which the file lies"
        ),
        "trusted_authors": Power("lets strangers speak to agents", waits=False),
        "review": _INNER,
        "fix": _INNER,
        "budget": _LIMIT,
        "docker": _INNER,
        "sandbox": Power("takes the walls away", _only("none"), "`none`"),
        "max_parallel_agents": _LIMIT,
        "coordinator": _INNER,
        "notification_routing": _WHO,
        "reactions": _RULES,
    },
    m.Notifications: {
        **dict.fromkeys(("digest", "rate_limit", "repeat_after"), "how often you are told"),
        "url": Power("has links for you lead there", waits=False),
    },
    m.AgentConfig: {
        "model": _HOW,
        "permissions": Power("asks you less", _more_than_own, "`full`, or more than your own file says"),
        "mode": _HOW,
        "mcp": "its own tools, for its own session",
    },
    m.Profile: {
        "tool": Power("code of others", _third("agent"), "not ours"),
        "role": _HOW,
        "runtime": Power("code of others, or less of a wall than you want", _runtime, "as in `defaults`"),
        "workspace": Power("code of others", _third("workspace"), "not ours"),
        "skills": _FREE_AGENT,
        "filters": _INNER,
        "model": _HOW,
        "permissions": Power("asks you less", _more_than_own, "`full`, or more than your own file says"),
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
        "agent": Power("code of others, or fewer walls than your agents have", _agent, "as in `defaults`"),
        "auto": Power("starts by itself", _only(True), "`true`"),
        "model": _HOW,
        "permissions": Power(
            "asks you less", _more_than_coordinator, "more than `default`, or than your own file says"
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
        "coordinator": _INNER,
        "planner": _INNER,
    },
    m.Planner: {
        "agent": Power("code of others, or fewer walls than your agents have", _agent, "as in `defaults`"),
        **dict.fromkeys(("model", "max_tasks", "attempts", "timeout"), _HOW),
    },
    m.Review: {
        "max_rounds": _LIMIT,
        "approval": Power("an agent's approval is enough", _only("agent"), "`agent`", waits=False),
    },
    m.Fix: {"commands": Power("runs", guarded=True), "timeout": _LIMIT, "parallel": _LIMIT},
    m.Filters: dict.fromkeys(("labels", "exclude_labels", "languages", "paths"), "which work it takes"),
}
"""Each section's keys: why one needs no trust, or what it would do."""


# -- finding and taking out --------------------------------------------------------------------------------------------


def powers(loaded: Loaded, around: Around | None = None, *, waits: bool = False) -> dict[str, Any]:
    """Everything that a file would run or open, or what of it has sessions wait for trust; empty when there is nothing."""
    loaded = loaded.bare or loaded
    around = _inside(loaded, around)
    found = _section(loaded.config, around, waits)
    for name in sorted(_daemon_keys()):
        found.pop(name, None)
    return _filled({**found, "variables": list(loaded.variables)})


def _inside(loaded: Loaded, around: Around | None) -> Around:
    given = loaded.config
    projects = [*given.projects.values(), *([given.project] if given.project else [])]
    return replace(
        around or Around(loaded.path.absolute().parent),
        defaults=given.defaults,
        profiles=given.agents,
        reactions=given.reactions,
        of_projects=tuple(one.reactions for one in projects),
    )


def walls(loaded: Loaded, own: m.Config | None = None) -> dict[str, bool]:
    """The walls that a file could put around agents, and whether it does; with `own`, where it says nothing the user's own file does."""
    config = (loaded.bare or loaded).config
    defaults = [config.defaults, *([own.defaults] if own else [])]
    sections = config.projects or {"": config.project or m.Project()}
    projects = {
        f"projects.{name}.": {
            **_kept((config.agents.get(str(_first("agent", project, *defaults)), project), project, *defaults)),
            "sandbox: bwrap": project.sandbox == "bwrap",
        }
        for name, project in sections.items()
    }
    weakest = {wall: all(found[wall] for found in projects.values()) for wall in next(iter(projects.values()))}
    profiles = {
        f"agents.{name}.": {
            wall: held if _said(wall, profile) else weakest[wall] for wall, held in _kept((profile,)).items()
        }
        for name, profile in config.agents.items()
    }
    places = {**projects, **profiles}
    everywhere = {wall: all(found.get(wall, True) for found in places.values()) for wall in weakest}
    named = places if config.projects else profiles
    return {
        f"{place}{wall}": held for place, found in {"": everywhere, **named}.items() for wall, held in found.items()
    }


def _kept(sections: Sequence[BaseModel]) -> dict[str, bool]:
    """The walls, beside a sandbox, by the first of these sections that says something."""
    runtime, permissions = _first("runtime", *sections), _permissions(*sections)
    within = RANKS.index(permissions) if permissions else len(RANKS)
    return {
        "runtime: docker": runtime == "docker",
        "permissions: plan": within == 0,
        "permissions: default": within <= 1,
    }


def _said(wall: str, profile: m.Profile) -> bool:
    return bool(getattr(profile, wall.partition(":")[0]))


def _permissions(*sections: BaseModel) -> Any:
    return _first("permissions", *(getattr(one, "agent_config", one) for one in sections))


def _first(name: str, *sections: BaseModel) -> Any:
    """What the first section that says something says."""
    given = (getattr(one, name) for one in sections if name in one.model_fields_set)
    return next((value for value in given if value), None)


def wall_digests(wall: str, file: Path) -> tuple[str, str]:
    """What stands for a wall that a trusted file of that folder put up, and for a person's word that it may go without."""
    return digest({"wall": wall}, file.parent), digest({"without": wall}, file.parent)


def started_with(loaded: Loaded) -> dict[str, Any]:
    """What a file would decide for the daemon as a whole, beside its port."""
    loaded = loaded.bare or loaded
    dumped = loaded.config.model_dump(mode="json", by_alias=True, include=_daemon_keys(), exclude_unset=True)
    return _filled(dumped)


def digest(found: Mapping[str, Any], file: Path | None = None) -> str:
    """A stable digest of powers, of one file: what `make test` does is another thing in another repository. "" when there are none."""
    if not found:
        return ""
    found = found if file is None else {"file": str(file.absolute()), "powers": found}
    text = json.dumps(found, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def harmless(loaded: Loaded, around: Around | None = None) -> m.Config:
    """The same file without its powers, but for those that whoever uses them asks about."""
    loaded = loaded.bare or loaded
    around = _inside(loaded, around)
    config = _without(loaded.config, around, told=not loaded.variables)
    assert isinstance(config, m.Config)
    return config


def code(loaded: Loaded, around: Around) -> list[Path]:
    """The files of code that a file names: whoever trusts it trusts their content too."""
    config = loaded.config
    named = [_at(around.folder, one.path, around) for one in config.plugins]
    projects = [*config.projects.values(), *([config.project] if config.project else [])]
    named += [
        _at(around.folder, one.path or ".", around) / one.docker.dockerfile for one in projects if one.docker.dockerfile
    ]
    return list(dict.fromkeys(named))


def content(path: Path) -> str:
    """A digest of a file of code where it stands; of one that cannot be read too."""
    return file_digest(path, _read(path))


def sha256(path: Path) -> str:
    """The SHA-256 of a file, as other programs print it."""
    return hashlib.sha256(_read(path)).hexdigest()


def _read(path: Path) -> bytes:
    """What a file holds. One that is longer than any code is never the same: nobody can stand for it."""
    try:
        real = path.resolve()
        return os.urandom(16) if real.is_file() and real.stat().st_size > LONGEST else read_plain(real)
    except (OSError, ValueError, RuntimeError) as error:
        return type(error).__name__.encode()


def file_digest(path: Path, data: bytes) -> str:
    """A digest of a file with this content."""
    return hashlib.sha256(f"{path}\0".encode(errors="surrogatepass") + hashlib.sha256(data).digest()).hexdigest()


def _daemon_keys() -> set[str]:
    return {name for name, told in KEYS[m.Config].items() if isinstance(told, Power) and "daemon" in told.when}


def _table(section: BaseModel) -> Mapping[str, str | Power]:
    return KEYS.get(type(section), {})


def _shown(section: BaseModel, name: str) -> str:
    return type(section).model_fields[name].alias or name


def _section(section: BaseModel, around: Around, waits: bool) -> dict[str, Any]:
    """The powers of a section and of those in it."""
    found: dict[str, Any] = {}
    for name in type(section).model_fields:
        if name not in section.model_fields_set:
            continue
        value, told = getattr(section, name), _table(section).get(name, _INNER)
        if isinstance(told, Power):
            if told.waits or not waits:
                found[_shown(section, name)] = _plain(told.find(value, section, around))
        elif told is _INNER:
            inner = _filled(
                {key: _of_own(key, one, around) or _section(one, around, waits) for key, one in _sections(value)}
            )
            found[_shown(section, name)] = inner.get("", inner)
    if isinstance(section, m.AgentConfig) and section.options:
        found["options"] = section.options
    return _filled(found)


def _of_own(name: str, section: BaseModel, around: Around) -> dict[str, Any]:
    """All that a profile says, if it says it over one of the user's: its walls, its tool and what it may spend are his word.

    So is one with fewer walls than his usual agent: a profile takes issues without being named.
    """
    if not isinstance(section, m.Profile):
        return {}
    over = section.model_fields_set - {"rules", "skills", "model"}
    said = section.model_dump(mode="json", by_alias=True, include=over)
    if name in around.own.agents:
        return said
    bare = _barer(section, _usual(section, around), around)
    return {**said, **dict(zip(("runtime", "permissions"), _comes_to(section, around), strict=True))} if bare else {}


def _sections(value: Any) -> Iterator[tuple[str, BaseModel]]:
    if isinstance(value, BaseModel):
        yield "", value
    elif isinstance(value, Mapping):
        yield from ((str(key), one) for key, one in value.items() if isinstance(one, BaseModel))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value


def _without(section: BaseModel, around: Around, told: bool) -> BaseModel:
    """A section without the powers in it that are not guarded; `told`: its reactions may speak, for nothing is filled in."""
    kept: dict[str, Any] = {}
    given = set(section.model_fields_set)
    for name, known in type(section).model_fields.items():
        value, entry = getattr(section, name), _table(section).get(name, _INNER)
        if name not in given:
            kept[name] = value
        elif not isinstance(entry, Power):
            kept[name] = _inner_without(value, around, told) if entry is _INNER else value
        elif entry.find is _rules and told:
            kept[name] = {
                key: _telling(key, rule) for key, rule in value.items() if not _moved(key, rule, section, around)
            }
        elif isinstance(value, m.Plugin) and entry.guarded:
            kept[name] = m.Plugin() if entry.find(value, section, around).get("plugin") else _unsigned(value)
        elif entry.guarded or not (entry.find is _rules or entry.find(value, section, around)):
            kept[name] = value
        else:
            kept[name] = known.get_default(call_default_factory=True)
            given.discard(name)
    return type(section).model_construct(given, **kept)


def _inner_without(value: Any, around: Around, told: bool) -> Any:
    if isinstance(value, BaseModel):
        return _without(value, around, told)
    if isinstance(value, Mapping):
        return {
            key: _without(one, around, told) if isinstance(one, BaseModel) else one
            for key, one in value.items()
            if not (isinstance(one, BaseModel) and _of_own(key, one, around))
        }
    return value


def _unsigned(value: m.Plugin) -> m.Plugin:
    """A forge or tracker whose webhooks nobody can sign."""
    return m.Plugin(plugin=value.plugin, **{key: one for key, one in value.options.items() if key != "webhook"})


def _telling(name: str, rule: m.Reaction) -> m.Reaction:
    """A rule without what it would run: its default does."""
    given = rule.model_fields_set - ({"message"} if _script(rule) else set())
    if rule.command or _decides(name, rule):
        given -= {"auto", "action", "command", "agent", "timeout"}
    if given == rule.model_fields_set:
        return rule
    return m.Reaction.model_construct(given, **{key: getattr(rule, key) for key in given})


def _filled(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in parts.items() if value}


def table() -> str:
    """Every key that needs trust, and why, for the reference page."""
    rows = ["| section | key | needs trust | because it | before that |", "|---|---|---|---|---|"]
    for section, keys in KEYS.items():
        for name, told in keys.items():
            shared = section is m.Project and m.Defaults in KEYS and KEYS[m.Defaults].get(name) is told
            if isinstance(told, Power) and not shared:
                then = "whoever would use it is refused" if told.guarded else "it is as if it were not written"
                key = section.model_fields[name].alias or name
                rows.append(f"| {section.__name__} | `{key}` | {told.when or 'always'} | {told.why} | {then} |")
    rows.append(
        "| AgentConfig | any other key | always | arguments and settings of programs | it is as if it were not written |"
    )
    rows.append(
        "| anywhere | `${NAME}` | where NAME is set | hands a variable of yours to agents | sessions wait, reactions say nothing |"
    )
    return "\n".join(rows) + "\n"
