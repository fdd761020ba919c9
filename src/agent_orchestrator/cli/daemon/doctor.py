"""Health and cleanup: `ao doctor`, `ao prune`."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import client, json_option
from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.errors import AoError, Unreachable, UsageError

Check = dict[str, Any]

_STATE_MARKS = {
    "ok": ("ok", "green"),
    "repaired": ("repaired", "green"),
    "damaged": ("damaged", "red"),
    "warning": ("warning", "yellow"),
    "failed": ("failed", "red"),
}


@click.command()
@click.option("--fix", is_flag=True, help="Mend what can be mended safely.")
@click.option("--repair", is_flag=True, help="Put a damaged $AO_HOME in order, while no daemon runs.")
@click.option("-n", "--dry-run", is_flag=True, help="With --repair: only say what is damaged.")
@json_option
def doctor(fix: bool, repair: bool, dry_run: bool, as_json: bool) -> int:
    """Check every prerequisite, each with its remedy.

    Where the daemon cannot start, it says why, and checks what can be checked without it.

    --repair looks at the database, tokens, files and worktrees of a home that was damaged by a full disk, a power cut or a
    slip of the hand. Whatever it changes is kept in $AO_HOME/damaged as it was. It exits with 1 if something is left to do.
    """
    if repair:
        return _repair(dry_run, as_json)
    if dry_run:
        raise UsageError("--dry-run goes with --repair", "ao doctor --repair --dry-run")
    ao = client()
    try:
        checks: list[Check] = ao.get("/api/doctor", {"fix": fix}, timeout=120.0)["checks"]
    except Unreachable as error:
        checks = [
            *local_checks(ao),
            {"name": "daemon", "state": "failed", "detail": error.text, "remedy": error.remedy},
        ]
    if not any(check["name"] == "PATH" for check in checks):
        checks += _path_checks(ao)
    if as_json:
        out.print_json({"checks": checks})
    else:
        out.print_lines(line for check in _group_absent_agents(checks) for line in check_lines(check))
    return 1 if any(check["state"] == "failed" for check in checks) else 0


def _path_checks(ao: DaemonClient) -> list[Check]:
    """Return a warning if the terminal's PATH contains our interpreter's programs, as an earlier version advised."""
    from agent_orchestrator.base import interpreter

    folder = interpreter.find_own_programs_folder(os.environ.get("PATH", ""))
    if folder is None:
        return []
    detail = f"the PATH of this terminal has {folder}: our own Python and its tools, not only ao"
    remedy = f"use this line instead, in your shell's profile too: {interpreter.export_line(ao.home)}"
    return [{"name": "PATH", "state": "warning", "detail": detail, "remedy": remedy}]


def _group_absent_agents(checks: list[Check]) -> list[Check]:
    """Combine the checks of agents that are not installed into one."""
    absent = [check for check in checks if check["name"].startswith("agent ") and _is_absent(check)]
    if len(absent) < 2:
        return checks
    names = ", ".join(check["name"].removeprefix("agent ") for check in absent)
    summary = {"name": "agents not installed", "state": "ok", "detail": names, "remedy": None}
    return [summary if check is absent[0] else check for check in checks if check not in absent[1:]]


def _is_absent(check: Check) -> bool:
    return bool(check["state"] == "ok" and check["detail"] == "not installed")


def _repair(dry_run: bool, as_json: bool) -> int:
    """Repair the home in a separate process, because the repair imports much."""
    import json
    import subprocess

    ao = client(start=False)
    command = [sys.executable, "-P", "-m", "agent_orchestrator.daemon.repair", *(["--dry-run"] if dry_run else [])]
    result = subprocess.run(command, env={**os.environ, "AO_HOME": ao.home}, capture_output=True)
    try:
        answer = json.loads(result.stdout)
    except ValueError:
        error_lines = result.stderr.decode(errors="replace").strip().splitlines() or [
            f"it ended with {result.returncode}"
        ]
        raise AoError(
            f"the repair failed: {error_lines[-1]}", f"copy {ao.home} to a safe place, and report this"
        ) from None
    if "error" in answer:
        error = AoError(answer["error"], answer["remedy"])
        error.exit_code = answer["exit"]
        raise error
    if as_json:
        out.print_json(answer)
    else:
        out.print_lines(line for check in answer["checks"] for line in check_lines(check))
        if answer["kept"]:
            out.print_note(f"what was changed is kept as it was in {answer['kept']}")
    return 1 if any(check["state"] in ("failed", "damaged") for check in answer["checks"]) else 0


def check_lines(check: Check) -> list[str]:
    """Return a check, and its remedy if it did not pass."""
    mark, colour = _STATE_MARKS.get(check["state"], (check["state"], "yellow"))
    lines = [
        f"{out.paint(f'{mark:<8}', colour)} {out.one_line(check['name'])}: {out.one_line(check.get('detail') or '')}".rstrip(
            ": "
        )
    ]
    if check["state"] != "ok" and check.get("remedy"):
        lines.append(f"         {out.one_line(check['remedy'])}")
    return lines


def local_checks(ao: DaemonClient) -> list[Check]:
    """Return the checks that need no daemon."""
    import shutil

    version = ".".join(map(str, sys.version_info[:3]))
    git = shutil.which("git")
    folder = ao.home
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    writable = os.path.isdir(folder) and os.access(folder, os.W_OK)
    return [
        _check("python", sys.version_info >= (3, 11), version, "install Python 3.11 or newer"),
        _check("git", git is not None, git or "not found", "install Git 2.38 or newer"),
        _check(
            "home",
            writable,
            f"{ao.home} is {'writable' if writable else 'not writable'}",
            "make it writable, or set AO_HOME",
        ),
    ]


def _check(name: str, passed: bool, detail: str, remedy: str) -> Check:
    return {"name": name, "state": "ok" if passed else "failed", "detail": detail, "remedy": remedy}


@click.command()
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be removed.")
@json_option
def prune(dry_run: bool, as_json: bool) -> None:
    """Remove what is provably safe to remove.

    Whatever is not on its base branch, pushed or saved stays, and is named with the reason.
    """
    answer = client().post("/api/prune", {"dryRun": dry_run}, timeout=600.0)
    if as_json:
        out.print_json(answer)
        return
    removed, kept = answer.get("removed") or [], answer.get("kept") or []
    verb = "would remove" if dry_run else "removed"
    out.print_lines(
        f"{verb} {item.get('kind') or ''} {out.one_line(item['what'])}: {out.one_line(item.get('why') or '')}"
        for item in removed
    )
    out.print_lines(f"kept {out.one_line(item['what'])}: {out.one_line(item.get('why') or '')}" for item in kept)
    if not removed:
        print("Nothing to remove.")
