"""The daemon keeps the machine awake while agents work, and sleep is allowed again when the daemon has ended."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from agent_orchestrator.testing.programs import Programs
from agent_orchestrator.testing.sandbox import Sandbox

INHIBIT = 'while [ "$1" != sh ]; do shift; done; exec "$@"'


def test_sleep_is_inhibited_during_a_turn_and_allowed_after_a_crash_of_the_daemon(tmp_path: Path) -> None:
    programs = Programs(tmp_path, "systemd-inhibit", then={"systemd-inhibit": INHIBIT})
    quiet = {"DBUS_SESSION_BUS_ADDRESS": "", "XDG_RUNTIME_DIR": str(tmp_path)}
    with Sandbox(tmp_path / "box", env=quiet) as box:
        box.env["PATH"] = f"{programs.folder}:{os.environ['PATH']}"
        box.repository()
        daemon = box.start()
        assert power_check(box) == ("ok", "may sleep: no agent is in a turn")
        box.ao("new", "--name", "x", "[[sleep: 300]]")
        box.wait_until(lambda: power_check(box) == ("ok", "kept awake by systemd-inhibit"))
        assert len(programs.started()) == 1
        (child,) = box.wait_until(
            lambda: [pid for pid in _children(daemon) if _command(pid) == b"cat\0"], "the inhibitor"
        )
        os.kill(daemon, signal.SIGKILL)
        box.wait_until(lambda: _command(child) != b"cat\0", "the inhibitor to end")


def test_sleep_is_not_inhibited_if_the_setting_is_off(tmp_path: Path) -> None:
    programs = Programs(tmp_path, "systemd-inhibit", then={"systemd-inhibit": INHIBIT})
    with Sandbox(tmp_path / "box", env={"DBUS_SESSION_BUS_ADDRESS": "", "XDG_RUNTIME_DIR": str(tmp_path)}) as box:
        box.env["PATH"] = f"{programs.folder}:{os.environ['PATH']}"
        box.repository()
        box.home.path.mkdir(exist_ok=True)
        box.home.config.write_text("power: {preventIdleSleep: false}\n")
        box.start()
        box.ao("new", "--name", "x", "[[sleep: 300]]")
        box.wait_until(lambda: box.session("app-x")["status"] == "working")
        assert power_check(box) == ("ok", "may sleep: power.preventIdleSleep is false")
        assert programs.started(within=0) == []
        box.home.config.write_text("power: {preventIdleSleep: true}\n")
        box.wait_until(lambda: programs.started(within=0), "the new setting to take effect")


def power_check(box: Sandbox) -> tuple[str, str]:
    checks = {check["name"]: check for check in box.request("GET", "/api/doctor")["checks"]}
    return checks["power"]["state"], checks["power"]["detail"]


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
