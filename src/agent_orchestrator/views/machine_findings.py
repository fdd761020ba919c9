"""The findings of `ao doctor` from facts about this machine: Git, file watches, open files, clock, agents' logins, identity,
nodes, address.

Each `_finding` function turns facts into a finding; the `read_` functions read the facts.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_orchestrator.base import interpreter
from agent_orchestrator.base.finding import Finding, finding
from agent_orchestrator.base.home import Home
from agent_orchestrator.base.processes import TARGET_OPEN_FILES
from agent_orchestrator.sessions.lifecycle.environment import AGENT_SECRETS

MIN_GIT_VERSION = (2, 25)
MIN_PREDICTION_GIT_VERSION = (2, 38)
"""The first version of Git with which conflicts can be predicted."""
MIN_WATCHES = 16_384
MIN_WATCH_INSTANCES = 64
MIN_OPEN_FILES = 1024
WARN_SHARE = 0.8
"""The part of a limit from which on its use is a warning."""
CLOCK_WARN_SECONDS, CLOCK_FAIL_SECONDS = 30.0, 300.0
"""Seconds that the clock may be wrong: from the first on it is a warning, from the second on signed webhooks are refused."""
CLOCK_REMEDY = "synchronise the clock: timedatectl set-ntp true (Linux), sudo sntp -sS time.apple.com (macOS)"

LOGIN_FILES: Mapping[str, tuple[str, ...]] = {
    "claude-code": (".claude/.credentials.json", ".claude.json"),
    "codex": (".codex/auth.json",),
    "gemini": (".gemini/oauth_creds.json",),
    "copilot": (".copilot/config.json", ".config/gh/hosts.yml"),
    "cursor": (".config/cursor/auth.json", ".cursor/cli-config.json"),
    "opencode": (".local/share/opencode/auth.json", ".config/opencode/opencode.json"),
    "goose": (".config/goose/config.yaml",),
    "aider": (".aider.conf.yml", ".env"),
    "kimicode": (".kimi/config.toml", ".kimi/credentials"),
    "amp": (".local/share/amp/secrets.json",),
    "auggie": (".augment/session.json",),
    "crush": (".local/share/crush/crush.json", ".config/crush/crush.json"),
    "droid": (".factory/auth.json",),
    "qwen": (".qwen/oauth_creds.json", ".qwen/settings.json"),
}
"""The files in which each agent keeps its login, relative to the user's home."""

KEYCHAIN_AGENTS = ("claude-code", "cursor")
"""Agents that keep their login in the keychain on macOS."""


def own_folder_finding(folder: str, home: Home) -> Finding:
    """Return the finding that the login shell's PATH holds our interpreter's programs, as an earlier version's instructions had it."""
    return finding(
        "PATH",
        "warning",
        f"the PATH of your login shell has {folder}: our own Python and its tools, not only ao. Agents and checks do not get "
        "it, but a login shell that an agent starts does",
        f"in your shell's profile, replace that line by: {interpreter.export_line(str(home.path))}; then: ao shutdown",
    )


# -- Git -----------------------------------------------------------------------------------------------------------------


def git_finding(version: tuple[int, ...] | None) -> Finding:
    """Return the finding whether Git is new enough; `version` is None if it was not found."""
    remedy = "install Git 2.38 or newer"
    if version is None:
        return finding("git", "failed", "not found", remedy)
    text = ".".join(map(str, version))
    if version < MIN_GIT_VERSION:
        return finding("git", "failed", text, remedy)
    if version < MIN_PREDICTION_GIT_VERSION:
        return finding("git", "warning", f"{text}: conflicts cannot be predicted", remedy)
    return finding("git", "ok", text)


# -- file watches --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileWatchUsage:
    """The kernel's limits of file watches, and how many this process uses."""

    max_watches: int
    max_instances: int
    used: int


def read_watches() -> FileWatchUsage | None:
    """Read the limits on Linux; return None elsewhere, where there are none."""
    folder = Path("/proc/sys/fs/inotify")
    try:
        most_watches, instances = (
            int((folder / name).read_text()) for name in ("max_user_watches", "max_user_instances")
        )
    except (OSError, ValueError):
        return None
    watches = 0
    for entry in Path("/proc/self/fdinfo").iterdir():
        with contextlib.suppress(OSError):
            watches += entry.read_text().count("inotify wd:")
    return FileWatchUsage(most_watches, instances, watches)


def file_watch_finding(facts: FileWatchUsage | None) -> Finding:
    """Return the finding whether file watches suffice for many workspaces."""
    if facts is None:
        return finding("file watches", "ok", "no limit on this system")
    detail = f"{facts.used:,} of {facts.max_watches:,} in use here, {facts.max_instances:,} instances"
    missing_settings = []
    if facts.max_watches < MIN_WATCHES or facts.used > facts.max_watches * WARN_SHARE:
        missing_settings.append("fs.inotify.max_user_watches=524288")
    if facts.max_instances < MIN_WATCH_INSTANCES:
        missing_settings.append("fs.inotify.max_user_instances=512")
    remedy = f"sudo sysctl {' '.join(missing_settings)} (for good: in /etc/sysctl.d)" if missing_settings else ""
    return finding("file watches", "warning" if missing_settings else "ok", detail, remedy)


# -- descriptors ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenFileUsage:
    """Open files of this process: in use, and allowed."""

    used: int
    max_open: int


def read_open_files() -> OpenFileUsage | None:
    """Read the open files of this process; return None if there is no such limit."""
    if sys.platform == "win32":
        return None
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    folder = next((candidate for candidate in map(Path, ("/proc/self/fd", "/dev/fd")) if candidate.is_dir()), None)
    open_files = len(list(folder.iterdir())) if folder else 0
    return OpenFileUsage(open_files, TARGET_OPEN_FILES if limit == resource.RLIM_INFINITY else limit)


def open_files_finding(facts: OpenFileUsage | None) -> Finding:
    """Return the finding whether the daemon may open enough files for its sessions and viewers."""
    if facts is None:
        return finding("open files", "ok", "no limit on this system")
    detail = f"{facts.used:,} of {facts.max_open:,}"
    if facts.max_open >= MIN_OPEN_FILES and facts.used <= facts.max_open * WARN_SHARE:
        return finding("open files", "ok", detail)
    return finding("open files", "warning", detail, "raise the hard limit where it is started: ulimit -H -n 8192")


# -- clock ---------------------------------------------------------------------------------------------------------------


def clock_finding(skews: Mapping[str, float]) -> Finding:
    """Return the finding whether the clock is right; `skews` has for each host the seconds by which its clock is ahead of ours."""
    if not skews:
        return finding("clock", "ok", "nothing to compare it with: no forge was asked yet")
    host, worst = max(skews.items(), key=lambda item: abs(item[1]))
    if abs(worst) < CLOCK_WARN_SECONDS:
        return finding("clock", "ok", f"as {host} has it, within {CLOCK_WARN_SECONDS:g} s")
    direction = "behind" if worst > 0 else "ahead of"
    detail = f"{abs(worst):,.0f} s {direction} {host}"
    if abs(worst) >= CLOCK_FAIL_SECONDS:
        return finding("clock", "failed", f"{detail}: signed webhooks are refused", CLOCK_REMEDY)
    return finding("clock", "warning", detail, CLOCK_REMEDY)


# -- agents --------------------------------------------------------------------------------------------------------------


def find_login(
    tool: str,
    env: Mapping[str, str],
    home: Path,
    exists: Callable[[Path], bool] = Path.exists,
    platform: str = sys.platform,
) -> str | None:
    """Return how an agent is logged in, as far as its files and variables show: None if not at all, "" if that is not known."""
    if tool not in AGENT_SECRETS or tool not in LOGIN_FILES:
        return ""
    if variable := next((name for name in AGENT_SECRETS[tool] if env.get(name)), None):
        return variable
    if platform == "darwin" and tool in KEYCHAIN_AGENTS:
        return ""
    return next((f"~/{name}" for name in LOGIN_FILES[tool] if exists(home / name)), None)


def agent_finding(row: Mapping[str, Any], login: str | None, *, used: bool) -> Finding:
    """Return the finding whether an agent is installed and logged in; `used` is whether a project uses it: a missing
    agent that is not used is no problem.
    """
    name = f"agent {row['name']}"
    if not row["found"]:
        detail = row["problem"] or "not installed"
        return finding(name, "warning" if used else "ok", detail, f"install it: docs/agents ({row['tool']})")
    detail = " ".join(filter(None, (row["version"], row["path"])))
    if login is None:
        variables = AGENT_SECRETS[row["tool"]]
        remedy = f"start {row['tool']} once by hand and sign in, or set {variables[0]} where the daemon is started"
        return finding(name, "warning", f"{detail}; no sign-in was found", remedy)
    return finding(name, "ok", f"{detail}; signed in by {login}" if login else detail)


# -- who commits -----------------------------------------------------------------------------------------------------------


def identity_finding(nameless: Sequence[str]) -> Finding:
    """Return the finding whether Git knows the author's name; `nameless` are the projects where it does not, "" meaning everywhere."""
    if not nameless:
        return finding("git identity", "ok", "Git knows whose commits it makes")
    where = f" in {nameless[0]}" if nameless[0] else ""
    where += f" and {len(nameless) - 1} more" if nameless[1:] else ""
    remedy = 'git config --global user.name "Your Name"; git config --global user.email you@example.com'
    return finding("git identity", "warning", f"Git does not know who you are{where}: agents cannot commit", remedy)


# -- the cluster, and where we listen ------------------------------------------------------------------------------------


def node_findings(nodes: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Return a finding for each node of the cluster."""
    node_findings = []
    for node in nodes:
        title, reason = f"node {node['name']}", node["reason"]
        state = node["state"]
        if state == "ready":
            node_findings.append(finding(title, "ok", f"ready, {node['cpus']:g} CPUs"))
        elif state in ("draining", "gone"):
            undo = f": takes no sessions until ao drain {node['name']} --undo" if state == "draining" else ""
            node_findings.append(finding(title, "ok", f"{state}{undo}"))
        else:
            remedy = "see that it runs and reaches this daemon: docs/cluster.md; ao nodes"
            node_findings.append(finding(title, "warning", f"{state}{f': {reason}' if reason else ''}", remedy))
    return node_findings


def address_finding(url: str, note: str | None) -> Finding:
    """Return the finding that shows where the daemon listens; `note` says why that differs from the configured address."""
    if note:
        return finding(
            "address",
            "warning",
            f"{url}: {note}",
            "end what has that port, or set `port`; then ao shutdown and ao start",
        )
    return finding("address", "ok", url)
