"""Start the daemon at login: a systemd user unit, or a launchd agent on macOS."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.errors import Missing, UsageError

UNIT_NAME = "agent-orchestrator.service"
AGENT_LABEL = "agent-orchestrator.daemon"
UNDO_COMMAND = "ao start --no-at-login"

_PASSED_VARIABLES = ("AO_HOME", "AO_CONFIG", "PATH", "LANG")
"""Variables of today's environment that the daemon needs; agents get those of the login shell anyway."""

platform = sys.platform


class ServiceFile(NamedTuple):
    """A service file for the system."""

    path: str
    text: bytes


def service_file(ao: DaemonClient, arguments: Sequence[str]) -> ServiceFile:
    """Return the service file for this system and these arguments; raise UsageError or Missing if it cannot be written."""
    argv = [sys.executable, "-P", "-m", "agent_orchestrator.daemon", *arguments]
    env = {name: value for name, value in ao.daemon_environment().items() if name in _PASSED_VARIABLES}
    for text in (*argv, *env.values()):  # systemd ends lines at \r, too
        if any(character < " " or "\ud800" <= character <= "\udfff" for character in text):
            raise UsageError(f"{text!r} has a character in it that cannot be told to the system", "rename it")
    if platform == "darwin":
        return ServiceFile(
            _path_below("~/Library/LaunchAgents", f"{AGENT_LABEL}.plist"), _launchd_plist(argv, env, ao.log_path)
        )
    if platform == "linux":
        folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
        return ServiceFile(_path_below(folder, "systemd", "user", UNIT_NAME), systemd_unit(argv, env).encode())
    raise Missing(
        "starting at login is known for systemd and launchd only", "have `ao start --no-open` run when you log in"
    )


def enable(ao: DaemonClient, arguments: Sequence[str]) -> list[str]:
    """Start the daemon at each login, and now if it does not run; return lines for the person."""
    service_ = service_file(ao, arguments)
    previous = _read(service_.path)
    try:
        os.makedirs(os.path.dirname(service_.path), exist_ok=True)
        with open(service_.path, "wb") as file:
            file.write(service_.text)
    except OSError as error:
        raise Missing(f"{service_.path} cannot be written: {error.strerror}", "make its folder writable") from None
    try:
        _register_service(service_, start=not _is_running(ao))
    except Missing:
        _restore_file(service_.path, previous)
        raise
    lines = [f"wrote {service_.path}", f"the daemon starts when you log in; undo: {UNDO_COMMAND}"]
    return [*lines, *_linger_hint()] if platform == "linux" else lines


def disable(ao: DaemonClient) -> list[str]:
    """Stop starting the daemon at login; a running daemon is not stopped."""
    service_ = service_file(ao, ())
    if _read(service_.path) is None:
        return ["the daemon does not start when you log in"]
    if platform == "darwin":
        _run("launchctl", "disable", _launchd_target(AGENT_LABEL))  # to unload it would end it
    else:
        _run("systemctl", "--user", "disable", UNIT_NAME)
    os.unlink(service_.path)
    if platform == "linux":
        _run("systemctl", "--user", "daemon-reload")
    return [
        f"removed {service_.path}",
        "the daemon does not start any more when you log in; it runs on until `ao shutdown`",
    ]


def systemd_unit(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """Return the text of the systemd unit. Agents survive the daemon's end."""
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
    """Quote a word for systemd with its special characters escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _launchd_plist(argv: Sequence[str], env: Mapping[str, str], log: str) -> bytes:
    import plistlib

    return plistlib.dumps(
        {
            "Label": AGENT_LABEL,
            "ProgramArguments": list(argv),
            "EnvironmentVariables": dict(env),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": 30,
            "AbandonProcessGroup": True,
            "StandardErrorPath": log,
        }
    )


def _register_service(service_: ServiceFile, *, start: bool) -> None:
    if platform == "darwin":
        _run_checked("launchctl", "enable", _launchd_target(AGENT_LABEL))
        if start:
            _run("launchctl", "bootout", _launchd_target(AGENT_LABEL))
            _run_checked("launchctl", "bootstrap", _launchd_target(), service_.path)
        return
    _run_checked("systemctl", "--user", "daemon-reload")
    _run_checked("systemctl", "--user", "enable", UNIT_NAME)
    if start:
        _run_checked("systemctl", "--user", "restart", UNIT_NAME)


def _linger_hint() -> list[str]:
    """Return a hint if the user's services end at logout."""
    code, output = _run("loginctl", "show-user", _user(), "--property=Linger")
    if code == 0 and output.strip() == "Linger=no":
        return ["it ends when you log out; to keep it running, also from boot on: loginctl enable-linger"]
    return []


def _user() -> str:
    import getpass

    return getpass.getuser()


def _launchd_target(*label: str) -> str:
    return "/".join([f"gui/{os.getuid()}", *label])


def _is_running(ao: DaemonClient) -> bool:
    from agent_orchestrator.errors import AoError

    try:
        with DaemonClient(ao.home, start=False) as running:
            running.request("GET", "/healthz", timeout=10.0)
    except AoError:
        return False
    return True


def _run_checked(*argv: str) -> None:
    code, output = _run(*argv)
    if code:
        reason = (output.strip().splitlines() or [f"exit {code}"])[-1]
        raise Missing(
            f"`{' '.join(argv)}` failed: {reason}", "see that your session has a service manager, or run ao start"
        )


def _run(*argv: str) -> tuple[int, str]:
    import subprocess

    try:
        result = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False, timeout=60.0)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, f"{argv[0]} cannot be run: {getattr(error, 'strerror', None) or 'it does not end'}"
    return result.returncode, result.stdout if result.returncode == 0 else result.stderr or result.stdout


def _path_below(*parts: str) -> str:
    return os.path.join(os.path.expanduser(parts[0]), *parts[1:])


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def _restore_file(path: str, previous: bytes | None) -> None:
    if previous is None:
        os.unlink(path)
    else:
        with open(path, "wb") as file:
            file.write(previous)
