"""What `ao doctor` makes of facts about this machine: file watches, descriptors, the clock, agents' logins, nodes, where we listen.

Each function takes the facts and says what they mean; how they are read is beside it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_orchestrator.base import interpreter
from agent_orchestrator.base.health import Finding, finding
from agent_orchestrator.base.home import Home
from agent_orchestrator.sessions.environment import AGENT_SECRETS

FEW_WATCHES = 16_384
FEW_INSTANCES = 64
FEW_DESCRIPTORS, ENOUGH_DESCRIPTORS = 1024, 65536
NEARLY = 0.8
"""The part of a limit from which on it is told."""
SKEWED, FAR_OFF = 30.0, 300.0
"""Seconds that the clock may be wrong: from the first on it is told, from the second on signed webhooks are refused."""
SYNCHRONISE = "synchronise the clock: timedatectl set-ntp true (Linux), sudo sntp -sS time.apple.com (macOS)"

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
"""Where each agent keeps that somebody signed in, below the person's home."""

IN_KEYCHAIN = ("claude-code", "cursor")
"""Those who keep it in the keychain on macOS."""


def of_own_folder(folder: str, home: Home) -> Finding:
    """The PATH of the user's login shell holds our interpreter's programs: an earlier version's instructions put them there."""
    return finding(
        "PATH",
        "warning",
        f"the PATH of your login shell has {folder}: our own Python and its tools, not only ao. Agents and checks do not get "
        "it, but a login shell that an agent starts does",
        f"in your shell's profile, replace that line by: {interpreter.export_line(str(home.path))}; then: ao shutdown",
    )


# -- file watches --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Watches:
    """The kernel's limits, and what this process uses of them."""

    most: int
    instances: int
    used: int


def read_watches() -> Watches | None:
    """Of Linux; none elsewhere, where nothing limits them."""
    folder = Path("/proc/sys/fs/inotify")
    try:
        most, instances = (int((folder / name).read_text()) for name in ("max_user_watches", "max_user_instances"))
    except (OSError, ValueError):
        return None
    used = 0
    for entry in Path("/proc/self/fdinfo").iterdir():
        with contextlib.suppress(OSError):
            used += entry.read_text().count("inotify wd:")
    return Watches(most, instances, used)


def of_watches(facts: Watches | None) -> Finding:
    """Are there enough for many workspaces?"""
    if facts is None:
        return finding("file watches", "ok", "no limit on this system")
    detail = f"{facts.used:,} of {facts.most:,} in use here, {facts.instances:,} instances"
    short = []
    if facts.most < FEW_WATCHES or facts.used > facts.most * NEARLY:
        short.append("fs.inotify.max_user_watches=524288")
    if facts.instances < FEW_INSTANCES:
        short.append("fs.inotify.max_user_instances=512")
    remedy = f"sudo sysctl {' '.join(short)} (for good: in /etc/sysctl.d)" if short else ""
    return finding("file watches", "warning" if short else "ok", detail, remedy)


# -- descriptors ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Descriptors:
    """Open files: in use, and allowed."""

    used: int
    most: int


def read_descriptors() -> Descriptors | None:
    """Of this process; none where there is no such limit."""
    if sys.platform == "win32":
        return None
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    folder = next((one for one in map(Path, ("/proc/self/fd", "/dev/fd")) if one.is_dir()), None)
    used = len(list(folder.iterdir())) if folder else 0
    return Descriptors(used, ENOUGH_DESCRIPTORS if most == resource.RLIM_INFINITY else most)


def raise_descriptors() -> None:
    """As many as may be had without asking anybody; this process's own, and of what it starts."""
    if sys.platform == "win32":
        return
    import resource

    most, could = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH_DESCRIPTORS if could == resource.RLIM_INFINITY else min(could, ENOUGH_DESCRIPTORS)
    if most != resource.RLIM_INFINITY and most < wanted:
        with contextlib.suppress(OSError, ValueError):  # a system may have another limit below
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, could))


def of_descriptors(facts: Descriptors | None) -> Finding:
    """May the daemon open as many files as it has sessions and viewers?"""
    if facts is None:
        return finding("open files", "ok", "no limit on this system")
    detail = f"{facts.used:,} of {facts.most:,}"
    if facts.most >= FEW_DESCRIPTORS and facts.used <= facts.most * NEARLY:
        return finding("open files", "ok", detail)
    return finding("open files", "warning", detail, "raise the hard limit where it is started: ulimit -H -n 8192")


# -- clock ---------------------------------------------------------------------------------------------------------------


def of_clock(skews: Mapping[str, float]) -> Finding:
    """`skews`: host → seconds by which its clock is ahead of ours."""
    if not skews:
        return finding("clock", "ok", "nothing to compare it with: no forge was asked yet")
    host, worst = max(skews.items(), key=lambda one: abs(one[1]))
    if abs(worst) < SKEWED:
        return finding("clock", "ok", f"as {host} has it, within {SKEWED:g} s")
    way = "behind" if worst > 0 else "ahead of"
    detail = f"{abs(worst):,.0f} s {way} {host}"
    if abs(worst) >= FAR_OFF:
        return finding("clock", "failed", f"{detail}: signed webhooks are refused", SYNCHRONISE)
    return finding("clock", "warning", detail, SYNCHRONISE)


# -- agents --------------------------------------------------------------------------------------------------------------


def login_of(
    tool: str,
    env: Mapping[str, str],
    home: Path,
    exists: Callable[[Path], bool] = Path.exists,
    platform: str = sys.platform,
) -> str | None:
    """How an agent is signed in, as far as can be seen without asking it; nothing: not at all, "": nothing is known of it."""
    if tool not in AGENT_SECRETS or tool not in LOGIN_FILES:
        return ""
    if variable := next((name for name in AGENT_SECRETS[tool] if env.get(name)), None):
        return variable
    if platform == "darwin" and tool in IN_KEYCHAIN:
        return ""
    return next((f"~/{name}" for name in LOGIN_FILES[tool] if exists(home / name)), None)


def of_agent(row: Mapping[str, Any], login: str | None, *, used: bool) -> Finding:
    """`used`: a project works with it. That one which nobody uses is not there is no fault."""
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


def of_identity(nameless: Sequence[str]) -> Finding:
    """`nameless`: projects where Git does not know whose commits it makes; "": nowhere. Agents commit as you do."""
    if not nameless:
        return finding("git identity", "ok", "Git knows whose commits it makes")
    where = f" in {nameless[0]}" if nameless[0] else ""
    where += f" and {len(nameless) - 1} more" if nameless[1:] else ""
    remedy = 'git config --global user.name "Your Name"; git config --global user.email you@example.com'
    return finding("git identity", "warning", f"Git does not know who you are{where}: agents cannot commit", remedy)


# -- the cluster, and where we listen ------------------------------------------------------------------------------------


def of_nodes(nodes: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Each node of the cluster."""
    found = []
    for node in nodes:
        title, reason = f"node {node['name']}", node["reason"]
        state = node["state"]
        if state == "ready":
            found.append(finding(title, "ok", f"ready, {node['cpus']:g} CPUs"))
        elif state in ("draining", "gone"):
            undo = f": takes no sessions until ao drain {node['name']} --undo" if state == "draining" else ""
            found.append(finding(title, "ok", f"{state}{undo}"))
        else:
            remedy = "see that it runs and reaches this daemon: docs/cluster.md; ao nodes"
            found.append(finding(title, "warning", f"{state}{f': {reason}' if reason else ''}", remedy))
    return found


def of_address(url: str, note: str | None) -> Finding:
    """Where the daemon listens; a note says that it is not where it was to be."""
    if note:
        return finding(
            "address",
            "warning",
            f"{url}: {note}",
            "end what has that port, or set `port`; then ao shutdown and ao start",
        )
    return finding("address", "ok", url)
