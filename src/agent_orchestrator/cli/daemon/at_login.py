"""The daemon, started by the system when its user logs in: a systemd user unit, or a launchd agent on macOS."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent_orchestrator.client.daemon_client import Client
from agent_orchestrator.errors import Missing, UsageError

UNIT = "agent-orchestrator.service"
LABEL = "agent-orchestrator.daemon"
UNDO = "ao start --no-at-login"

_KEPT = ("AO_HOME", "AO_CONFIG", "PATH", "LANG")
"""What the daemon needs of today's environment; agents get that of the login shell anyway."""

platform = sys.platform


class Service(NamedTuple):
    """What the system is told."""

    path: str
    text: bytes


def service(ao: Client, arguments: Sequence[str]) -> Service:
    """The file for this system, for a daemon that is started with these arguments."""
    argv = [sys.executable, "-P", "-m", "agent_orchestrator.daemon", *arguments]
    env = {name: value for name, value in ao.daemon_environment().items() if name in _KEPT}
    for text in (*argv, *env.values()):  # systemd ends lines at \r, too
        if any(character < " " or "\ud800" <= character <= "\udfff" for character in text):
            raise UsageError(f"{text!r} has a character in it that cannot be told to the system", "rename it")
    if platform == "darwin":
        return Service(_below("~/Library/LaunchAgents", f"{LABEL}.plist"), _plist(argv, env, ao.log))
    if platform == "linux":
        folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
        return Service(_below(folder, "systemd", "user", UNIT), unit(argv, env).encode())
    raise Missing(
        "starting at login is known for systemd and launchd only", "have `ao start --no-open` run when you log in"
    )


def enable(ao: Client, arguments: Sequence[str]) -> list[str]:
    """Have the daemon started at each login from now on, and now if it does not run; returns what to tell the person."""
    made = service(ao, arguments)
    before = _read(made.path)
    try:
        os.makedirs(os.path.dirname(made.path), exist_ok=True)
        with open(made.path, "wb") as file:
            file.write(made.text)
    except OSError as error:
        raise Missing(f"{made.path} cannot be written: {error.strerror}", "make its folder writable") from None
    try:
        _tell_system(made, start=not _runs(ao))
    except Missing:
        _put_back(made.path, before)
        raise
    lines = [f"wrote {made.path}", f"the daemon starts when you log in; undo: {UNDO}"]
    return [*lines, *_linger()] if platform == "linux" else lines


def disable(ao: Client) -> list[str]:
    """Have it started no more; a daemon that runs, runs on."""
    made = service(ao, ())
    if _read(made.path) is None:
        return ["the daemon does not start when you log in"]
    if platform == "darwin":
        _run("launchctl", "disable", _target(LABEL))  # to unload it would end it
    else:
        _run("systemctl", "--user", "disable", UNIT)
    os.unlink(made.path)
    if platform == "linux":
        _run("systemctl", "--user", "daemon-reload")
    return [
        f"removed {made.path}",
        "the daemon does not start any more when you log in; it runs on until `ao shutdown`",
    ]


def unit(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """The systemd unit. Agents are left alone when the daemon ends: they live on without it."""
    variables = "".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in sorted(env.items()))
    command = " ".join(_quoted(word).replace("$", "$$") for word in argv)
    return (
        "# Written by `ao start --at-login`.\n"
        "[Unit]\n"
        "Description=Agent Orchestrator\n"
        "StartLimitIntervalSec=600\n"
        "StartLimitBurst=10\n"
        "\n"
        "[Service]\n"
        f"ExecStart={command}\n"
        f"{variables}"
        "Restart=on-failure\n"
        "RestartSec=30\n"
        "KillMode=process\n"
        "\n"
        "[Install]\n"
        "WantedBy=default.target\n"
    )


def _quoted(text: str) -> str:
    """A word for systemd: what is special to it is itself."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _plist(argv: Sequence[str], env: Mapping[str, str], log: str) -> bytes:
    import plistlib

    return plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": list(argv),
            "EnvironmentVariables": dict(env),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": 30,
            "AbandonProcessGroup": True,
            "StandardErrorPath": log,
        }
    )


def _tell_system(made: Service, *, start: bool) -> None:
    if platform == "darwin":
        _must("launchctl", "enable", _target(LABEL))
        if start:
            _run("launchctl", "bootout", _target(LABEL))
            _must("launchctl", "bootstrap", _target(), made.path)
        return
    _must("systemctl", "--user", "daemon-reload")
    _must("systemctl", "--user", "enable", UNIT)
    if start:
        _must("systemctl", "--user", "restart", UNIT)


def _linger() -> list[str]:
    """A user's services end with his last session, unless he said otherwise."""
    code, said = _run("loginctl", "show-user", _user(), "--property=Linger")
    if code == 0 and said.strip() == "Linger=no":
        return ["it ends when you log out; to keep it running, also from boot on: loginctl enable-linger"]
    return []


def _user() -> str:
    import getpass

    return getpass.getuser()


def _target(*label: str) -> str:
    return "/".join([f"gui/{os.getuid()}", *label])


def _runs(ao: Client) -> bool:
    from agent_orchestrator.errors import AoError

    try:
        with Client(ao.home, start=False) as running:
            running.request("GET", "/healthz", timeout=10.0)
    except AoError:
        return False
    return True


def _must(*argv: str) -> None:
    code, said = _run(*argv)
    if code:
        why = (said.strip().splitlines() or [f"exit {code}"])[-1]
        raise Missing(
            f"`{' '.join(argv)}` failed: {why}", "see that your session has a service manager, or run ao start"
        )


def _run(*argv: str) -> tuple[int, str]:
    import subprocess

    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False, timeout=60.0)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, f"{argv[0]} cannot be run: {getattr(error, 'strerror', None) or 'it does not end'}"
    return done.returncode, done.stdout if done.returncode == 0 else done.stderr or done.stdout


def _below(*parts: str) -> str:
    return os.path.join(os.path.expanduser(parts[0]), *parts[1:])


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def _put_back(path: str, before: bytes | None) -> None:
    if before is None:
        os.unlink(path)
    else:
        with open(path, "wb") as file:
            file.write(before)
