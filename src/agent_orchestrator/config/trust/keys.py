"""The table of all keys of a configuration: which need trust, and why; which do not, and why not."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from agent_orchestrator.config import model as m
from agent_orchestrator.config.trust.agents import (
    more_sessions,
    weaker_agent,
    weaker_runtime,
    wider_coordinator_permissions,
    wider_permissions,
)
from agent_orchestrator.config.trust.forges import foreign_repository, forge_powers
from agent_orchestrator.config.trust.power import Power
from agent_orchestrator.config.trust.reactions import rule_powers
from agent_orchestrator.config.trust.values import (
    new_notifiers,
    new_routes,
    notifier_settings,
    path_outside,
    plugin_files,
    power_for_values,
    risky_variables,
    terminal_powers,
    third_party_plugin,
)

_READABLE_ANYWAY = "what it reads, it could read in any file of the repository"

_ONLY_A_LIMIT = "a limit; those of your own file hold too"

_INSIDE_CHECKOUT = "files of the checkout itself, never from outside it"

_ONLY_A_NAME = "a name that is shown"

_ONLY_MANNER = "how something is done that is allowed otherwise"

_DAEMON_WIDE = "counts only in your own file, or in one that you started the daemon with"

NESTED_SECTION = ""
"""The key is a section: its own keys are listed separately."""

_ENV_POWER = Power(
    "may decide which programs run, or whom they ask",
    risky_variables,
    "all names but `APP_…`, `FEATURE_…`, `TEST_…`, `CI`, `DEBUG`, `PORT`, `LOG_LEVEL`, `NO_COLOR` and `FORCE_COLOR`;"
    " of these too such as end in `…_URL`, `…_PATH` or `…_CMD`",
)

_RULES_POWER = Power(
    "runs, starts agents by itself, lands what nobody approved, holds your account for all projects, or spends more than you let it",
    rule_powers,
    "`command`, `action: spawn`, `action: hold`, `action: merge` by another trigger than `approved-and-green`, a message with"
    " `[[…]]`, or another trigger, condition and the like of a rule of yours that does so, or of `budget-exceeded` where your own"
    " file has a budget",
)

_ROUTES_POWER = Power("tells somebody else", new_routes, "neither `desktop` nor one of yours", blocks_start=False)

_FORGE_VALUES = (
    "another host, a token, a webhook's secret, a `project` or `team` that your own file does not name, or not ours"
)

_DEFAULTS_KEYS: dict[str, str | Power] = {
    "runtime": Power(
        "code of others, or less of a wall than you want", weaker_runtime, "not ours, or none where you have `docker`"
    ),
    "agent": Power(
        "code of others, or fewer walls than your agents have",
        weaker_agent,
        "no agent of ours and no profile, one of yours that asks less or is no container, or whatever has fewer walls than the profile"
        " that your own file names there, or another one where that has a budget",
    ),
    "workspace": Power("code of others", third_party_plugin("workspace"), "not ours"),
    "tracker": Power("sends tokens, or opens issues of yours", forge_powers("tracker"), _FORGE_VALUES, guarded=True),
    "scm": Power("sends tokens, or opens issues of yours", forge_powers("scm"), _FORGE_VALUES, guarded=True),
    "notifiers": Power("tells somebody else", new_notifiers, "neither `desktop` nor one of yours", blocks_start=False),
    "terminal": Power(
        "runs on your screen", terminal_powers, "not ours, or with options such as a `command`", blocks_start=False
    ),
    "agent_config": NESTED_SECTION,
}

TRUST_BY_KEY: Mapping[type[BaseModel], Mapping[str, str | Power]] = {
    m.Config: {
        "port": _DAEMON_WIDE,
        "host": Power("opens the daemon", affected_values="in a file that you started the daemon with"),
        "tls": Power("opens the daemon", affected_values="in a file that you started the daemon with"),
        "database": Power("gives everything away", affected_values="in a file that you started the daemon with"),
        "cluster": Power("runs elsewhere", affected_values="in a file that you started the daemon with"),
        "power": _DAEMON_WIDE,
        "defaults": NESTED_SECTION,
        "projects": NESTED_SECTION,
        "project": NESTED_SECTION,
        "agents": NESTED_SECTION,
        "orchestrator": NESTED_SECTION,
        "reactions": _RULES_POWER,
        "notifiers": Power("sends what happens somewhere", notifier_settings, blocks_start=False),
        "notification_routing": _ROUTES_POWER,
        "notifications": NESTED_SECTION,
        "quiet_hours": "when you are told",
        "plugins": Power("code: holds for the files' content too", plugin_files),
    },
    m.Defaults: _DEFAULTS_KEYS,
    m.Project: {
        **_DEFAULTS_KEYS,
        "name": _ONLY_A_NAME,
        "repo": Power(
            "pushes and comments there",
            foreign_repository,
            "not the checkout's own remote, by its name and host",
            guarded=True,
        ),
        "path": Power("another repository of yours", path_outside, "outside the folder in which the file lies"),
        "default_branch": "what lands there, lands by your word",
        "session_prefix": _ONLY_A_NAME,
        "ci": Power("runs", lambda value, _s, _a: {name: check.command for name, check in value.items()}, guarded=True),
        "commands": Power("agents run it without asking"),
        "symlinks": _INSIDE_CHECKOUT,
        "copy_": _INSIDE_CHECKOUT,
        "sparse": _INSIDE_CHECKOUT,
        "post_create": Power("runs", guarded=True),
        "red_base": "whether failures of the base branch hold a merge; no key lets through what is new",
        "ports": "numbers that agents are told",
        "env": _ENV_POWER,
        "worktree_dir": Power("writes there", path_outside, "outside the folder in which the file lies"),
        "branch_pattern": _ONLY_A_NAME,
        "agent_rules": _READABLE_ANYWAY,
        "agent_rules_file": Power(
            "shows a file of yours to agents", path_outside, "outside the folder in which the file lies"
        ),
        "trusted_authors": Power("lets strangers speak to agents", blocks_start=False),
        "review": NESTED_SECTION,
        "fix": NESTED_SECTION,
        "budget": _ONLY_A_LIMIT,
        "docker": NESTED_SECTION,
        "sandbox": Power("takes the walls away", power_for_values("none"), "`none`"),
        "max_parallel_agents": _ONLY_A_LIMIT,
        "coordinator": NESTED_SECTION,
        "notification_routing": _ROUTES_POWER,
        "reactions": _RULES_POWER,
    },
    m.Notifications: {
        **dict.fromkeys(("digest", "rate_limit", "repeat_after"), "how often you are told"),
        "url": Power("has links for you lead there", blocks_start=False),
    },
    m.AgentConfigSection: {
        "model": _ONLY_MANNER,
        "permissions": Power("asks you less", wider_permissions, "`full`, or more than your own file says"),
        "mode": _ONLY_MANNER,
        "mcp": "its own tools, for its own session",
    },
    m.Profile: {
        "tool": Power("code of others", third_party_plugin("agent"), "not ours"),
        "role": _ONLY_MANNER,
        "runtime": Power("code of others, or less of a wall than you want", weaker_runtime, "as in `defaults`"),
        "workspace": Power("code of others", third_party_plugin("workspace"), "not ours"),
        "skills": _READABLE_ANYWAY,
        "filters": NESTED_SECTION,
        "model": _ONLY_MANNER,
        "permissions": Power("asks you less", wider_permissions, "`full`, or more than your own file says"),
        "mode": _ONLY_MANNER,
        "rules": _READABLE_ANYWAY,
        "env": _ENV_POWER,
        "account": _ONLY_A_NAME,
        "max_parallel_agents": _ONLY_A_LIMIT,
        "budget": _ONLY_A_LIMIT,
        "reactions": _RULES_POWER,
        "command": Power("runs", guarded=True),
        "prompt": _ONLY_MANNER,
        "resume": Power("runs", guarded=True),
        "screen": Power(
            "has the daemon match patterns, which may take without end",
            lambda value, _s, _a: value.model_dump(exclude_none=True),
        ),
        "script": Power("runs", guarded=True),
        "options": Power("arguments and settings of programs"),
    },
    m.DockerSection: {
        "image": Power("gets what your agent logs in with", guarded=True),
        "dockerfile": Power("is built: holds for the file's content too", guarded=True),
        "network": Power("reaches your machine", power_for_values("host"), "`host`", guarded=True),
        "allow": Power("may be told what the agent knows", guarded=True),
        "cpus": _ONLY_A_LIMIT,
        "memory": _ONLY_A_LIMIT,
        "mounts": Power("shows files of yours to agents", guarded=True),
        "engine": _ONLY_MANNER,
    },
    m.Coordinator: {
        "agent": Power("code of others, or fewer walls than your agents have", weaker_agent, "as in `defaults`"),
        "auto": Power("starts by itself", power_for_values(True), "`true`"),
        "model": _ONLY_MANNER,
        "permissions": Power(
            "asks you less", wider_coordinator_permissions, "more than `default`, or than your own file says"
        ),
        "rules": _READABLE_ANYWAY,
        "may": Power("decides for you"),
        "max_sessions": Power("starts more than you let it", more_sessions, "more than your own file says"),
        "digest": _ONLY_MANNER,
        "conversation": _ONLY_MANNER,
    },
    m.OrchestratorSection: {
        "max_parallel_agents": _ONLY_A_LIMIT,
        "auto_assign": Power("starts agents by itself", power_for_values(True), "`true`"),
        "budget": _ONLY_A_LIMIT,
        "coordinator": NESTED_SECTION,
        "planner": NESTED_SECTION,
    },
    m.PlannerSection: {
        "agent": Power("code of others, or fewer walls than your agents have", weaker_agent, "as in `defaults`"),
        **dict.fromkeys(("model", "max_tasks", "attempts", "timeout"), _ONLY_MANNER),
    },
    m.ReviewSection: {
        "max_rounds": _ONLY_A_LIMIT,
        "approval": Power("an agent's approval is enough", power_for_values("agent"), "`agent`", blocks_start=False),
    },
    m.FixSection: {"commands": Power("runs", guarded=True), "timeout": _ONLY_A_LIMIT, "parallel": _ONLY_A_LIMIT},
    m.Filters: dict.fromkeys(("labels", "exclude_labels", "languages", "paths"), "which work it takes"),
}
"""The keys of each section: why one needs no trust, or the power that it is."""


def trust_table() -> str:
    """Return the table of every key that needs trust, and why, for the reference page."""
    rows = ["| section | key | needs trust | because it | before that |", "|---|---|---|---|---|"]
    for section, keys in TRUST_BY_KEY.items():
        for name, entry in keys.items():
            is_in_defaults = (
                section is m.Project and m.Defaults in TRUST_BY_KEY and TRUST_BY_KEY[m.Defaults].get(name) is entry
            )
            if isinstance(entry, Power) and not is_in_defaults:
                consequence = "whoever would use it is refused" if entry.guarded else "it is as if it were not written"
                key = section.model_fields[name].alias or name
                rows.append(
                    f"| {section.__name__} | `{key}` | {entry.affected_values or 'always'} | {entry.why} | {consequence} |"
                )
    rows.append(
        "| AgentConfig | any other key | always | arguments and settings of programs | it is as if it were not written |"
    )
    rows.append(
        "| anywhere | `${NAME}` | where NAME is set | hands a variable of yours to agents | sessions wait, reactions say nothing |"
    )
    return "\n".join(rows) + "\n"
