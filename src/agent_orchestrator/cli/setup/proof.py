"""The dialogue of `ao init`: show the detected commands, ask, prove them in a clean checkout, and show the result."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

import click

from agent_orchestrator.base.http_client import ConnectionBroken, error_from_problem, quote
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import can_ask
from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.errors import Denied

Json = dict[str, Any]

QUESTION = "These commands run this repository's scripts. Run and prove them in a clean checkout?"
NOTHING_RUN_TEXT = "Nothing was run. To trust these commands and prove them: ao init --check --yes"
_MAX_SHOWN_FAILURES = 5
_MAX_SHOWN_LINES = 12


def propose(
    ao: DaemonClient, project: Json, *, yes: bool = False, no_prove: bool = False, ask: bool = True
) -> Json | None:
    """Show what was detected for a project, and prove it if the person agrees; return the proof if commands ran or a file was written."""
    proposal = project["proposal"]
    out.print_lines(_detected_lines(project, proposal))
    has_agreed = yes or (ask and not no_prove and can_ask() and click.confirm(QUESTION, default=True, err=True))
    if not has_agreed:
        print(_nothing_run_text(project))
        return None
    return prove(ao, project["id"], proposal["digest"], run=not no_prove)


def _nothing_run_text(project: Json) -> str:
    """Return how to continue when nothing was run."""
    return (
        NOTHING_RUN_TEXT
        if project.get("trusted") is False
        else "Nothing was run. To prove and write them: ao init --yes"
    )


def prove(
    ao: DaemonClient, project: str, detected: str | None = None, *, run: bool = True, quiet: bool = False
) -> Json:
    """Have a project proven, with progress on standard error; Ctrl-C stops it."""
    progress = _ProgressLine(quiet)
    body = {"run": run} | ({} if detected is None else {"detected": detected})
    try:
        with ao.stream("POST", f"/api/projects/{quote(project)}/prove", body) as stream:
            while (line := stream.read_line()) is not None:
                message: Json = json.loads(line) if line.strip() else {}
                if "problem" in message:
                    raise error_from_problem(message["problem"])
                if "proof" in message:
                    return dict(message["proof"])
                if "running" in message:
                    progress.show(message["running"])
        raise ConnectionBroken("in the midst of the proof")
    except KeyboardInterrupt:
        progress.clear()
        out.print_note("interrupted: nothing was proven. To prove it: ao init --check")
        raise
    finally:
        progress.clear()


class _ProgressLine:
    """Progress of the running command: one line that is rewritten on a terminal, else one line per command."""

    def __init__(self, quiet: bool) -> None:
        self.is_quiet = quiet
        self.is_terminal = sys.stderr.isatty()
        self.last: tuple[int, str] = (0, "")

    def show(self, running: Json) -> None:
        if self.is_quiet:
            return
        which = f"attempt {running['attempt']} of {running['of']}: " if running["attempt"] > 1 else ""
        command = out.one_line(running["command"])
        if self.is_terminal:
            seconds = f"  {_seconds_text(running['seconds'])}"
            text = out.truncate(f"{which}{command}", max(20, out.terminal_width() - len(seconds) - 1))
            print(f"\r\x1b[K{text}{seconds}", end="", file=sys.stderr, flush=True)
        elif self.last != (running["attempt"], command):
            print(f"running {which}{command}", file=sys.stderr, flush=True)
        self.last = (running["attempt"], command)

    def clear(self) -> None:
        if self.is_terminal and self.last[1]:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self.last = (0, "")


def ensure_configured_trusted(ao: DaemonClient, path: str, *, yes: bool) -> None:
    """Make sure that the commands in a project's file are trusted; ask on a terminal, raise `Denied` without agreement."""
    answer = ao.get("/api/projects/trust", {"path": path})
    if answer["trusted"] or not answer["commands"]:
        return
    if not yes:
        error = Denied(
            f"the commands of {answer['file']} are not trusted, so nothing was run",
            "ao init --check --yes, or ao trust",
        )
        if not can_ask():
            raise error
        print(f"{out.one_line(answer['project'])} would run:", file=sys.stderr)
        for command in answer["commands"]:
            print(f"  {out.one_line(command)}", file=sys.stderr)
        if not click.confirm(QUESTION, default=True, err=True):
            raise error
    ao.post("/api/projects/trust", {"path": path, "digest": answer["digest"]})


# -- what is shown -----------------------------------------------------------------------------------------------------


def _detected_lines(project: Json, proposal: Json) -> list[str]:
    first, *others = proposal["candidates"]
    rows = [
        ("default branch", project.get("defaultBranch") or "unknown"),
        ("remote", project.get("repo") or "none"),
        ("agent", project.get("agent") or "none"),
        ("detected", f"{first['ecosystem']} ({', '.join(first['evidence'])})"),
        ("set-up", _join_commands(first["setUp"]) or "none needed"),
        ("test", first["test"] or "none"),
        ("lint", first["lint"] or "none"),
        *([("agents may run", ", ".join(proposal["commands"]))] if proposal["commands"] else []),
        *(("otherwise", f"{candidate['ecosystem']}: {_commands_text(candidate)}") for candidate in others),
    ]
    return [f"  {name:<16}{out.one_line(value)}" for name, value in rows]


def _commands_text(candidate: Json) -> str:
    return "; ".join(filter(None, [_join_commands(candidate["setUp"]), candidate["test"]])) or "nothing"


def _join_commands(commands: list[str]) -> str:
    return " && ".join(commands)


def proof_lines(proof: Json) -> list[str]:
    """Return the result of a proof: one line if it works; else the reason, what was tried, and how to set the commands."""
    if not proof["tried"]:
        lines = ["Nothing was run. To prove these commands: ao init --check"]
    else:
        lines = [_proof_summary(proof)] if proof["proven"] else _not_proven_lines(proof)
    if proof["proven"]:
        for check in proof["checks"]:
            shown_failures = check["failures"][:_MAX_SHOWN_FAILURES] if check["state"] == "failure" else []
            lines += [f"  {out.one_line(_failure_text(failure))}" for failure in shown_failures]
            if hidden_count := len(check["failures"]) - len(shown_failures) if shown_failures else 0:
                lines.append(f"  and {hidden_count} more")
    lines += [f"left out: {out.one_line(item)}" for item in proof["leftOut"]]
    if proof["written"]:
        lines.append(f"wrote {out.one_line(proof['written'])}")
        lines += [f"  {name:<16}{out.one_line(value)}" for name, value in _written_keys(proof)]
    lines += [f"differs: {out.one_line(item)}" for item in proof["drift"]]
    return lines


def _written_keys(proof: Json) -> list[tuple[str, str]]:
    set_up = _join_commands(proof["setUp"]["commands"])
    return [
        *([("postCreate", set_up)] if set_up else []),
        *(
            ("ci" if check["name"] == "default" else f"ci.{check['name']}", check["command"])
            for check in proof["checks"]
        ),
    ]


def _proof_summary(proof: Json) -> str:
    """Return the summary line: `set-up 12 s; 295 passed, 2 failed on main, 4.1 s`."""
    has_several = len(proof["checks"]) > 1
    parts = [f"set-up {_seconds_text(proof['setUp']['seconds'])}"] if proof["setUp"]["commands"] else []
    for check in proof["checks"]:
        name = f"{check['name']}: " if has_several else ""
        parts.append(f"{name}{_check_result_text(check, proof['base'])}, {_seconds_text(check['seconds'])}")
    if not proof["checks"]:
        parts.append("no test command was found")
    return out.one_line("; ".join(parts))


def _check_result_text(check: Json, base: str) -> str:
    counts = (
        [f"{check[kind]} {kind}" for kind in ("passed", "failed") if check[kind]] if check["passed"] is not None else []
    )
    if check["state"] == "failure":
        return f"{', '.join(counts) or 'fails'} on {base}"
    text = ", ".join(counts) or "passes"
    return f"{text} (flaky)" if check["state"] == "flaky" else text


def _failure_text(failure: Json) -> str:
    return f"{failure['name']}: {failure['message']}" if failure["message"] else str(failure["name"])


def _not_proven_lines(proof: Json) -> list[str]:
    project = shlex.quote(proof["project"])
    lines = [f"Not proven: {out.one_line(proof['reason'])}"]
    lines += [
        f"  tried {out.one_line(_commands_text(attempt))}: {out.one_line(attempt['reason'] or 'works')}"
        for attempt in proof["tried"]
    ]
    output = [line for line in out.clean(proof["summary"]).splitlines()[1:] if line.strip()]
    lines += [f"    {line}" for line in output[-_MAX_SHOWN_LINES:]]
    return [
        *lines,
        "Set the commands, then prove them:",
        f"  ao config set projects.{project}.postCreate '[COMMAND]'",
        f"  ao config set projects.{project}.ci.command COMMAND",
        "  ao init --check",
    ]


def _seconds_text(value: float) -> str:
    return f"{value:.0f} s" if value >= 10 else f"{value:.1f} s"
