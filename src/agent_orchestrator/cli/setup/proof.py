"""The dialogue of `ao init`: show what was detected, ask, prove it in a clean checkout, and say what came of it."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

import click

from agent_orchestrator.base.http_client import Broken, error_of, quote
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import can_answer
from agent_orchestrator.client.daemon_client import Client
from agent_orchestrator.errors import Denied

Json = dict[str, Any]

QUESTION = "These commands run this repository's scripts. Run and prove them in a clean checkout?"
NOTHING_RUN = "Nothing was run. To trust these commands and prove them: ao init --check --yes"
_SHOWN_FAILURES = 5
_SHOWN_LINES = 12


def propose(ao: Client, project: Json, *, yes: bool = False, no_prove: bool = False, ask: bool = True) -> Json | None:
    """Show what was detected for a project, and prove it if the person agrees; returns the proof, if something was run or written."""
    proposal = project["proposal"]
    out.show(_detected(project, proposal))
    agreed = yes or (ask and not no_prove and can_answer() and click.confirm(QUESTION, default=True, err=True))
    if not agreed:
        print(_nothing_run(project))
        return None
    return prove(ao, project["id"], proposal["digest"], run=not no_prove)


def _nothing_run(project: Json) -> str:
    """How to go on where nothing was run: the keys may still have to be written."""
    return NOTHING_RUN if project.get("trusted") is False else "Nothing was run. To prove and write them: ao init --yes"


def prove(ao: Client, project: str, detected: str | None = None, *, run: bool = True, quiet: bool = False) -> Json:
    """Have a project proven, with progress on standard error; Ctrl-C ends what runs."""
    progress = _Progress(quiet)
    body = {"run": run} | ({} if detected is None else {"detected": detected})
    try:
        with ao.stream("POST", f"/api/projects/{quote(project)}/prove", body) as stream:
            while (line := stream.line()) is not None:
                said: Json = json.loads(line) if line.strip() else {}
                if "problem" in said:
                    raise error_of(said["problem"])
                if "proof" in said:
                    return dict(said["proof"])
                if "running" in said:
                    progress.show(said["running"])
        raise Broken("in the midst of the proof")
    except KeyboardInterrupt:
        progress.clear()
        out.note("interrupted: nothing was proven. To prove it: ao init --check")
        raise
    finally:
        progress.clear()


class _Progress:
    """What is being run: one line that is rewritten on a terminal, else a line per command."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.terminal = sys.stderr.isatty()
        self.last: tuple[int, str] = (0, "")

    def show(self, running: Json) -> None:
        if self.quiet:
            return
        which = f"attempt {running['attempt']} of {running['of']}: " if running["attempt"] > 1 else ""
        command = out.one_line(running["command"])
        if self.terminal:
            seconds = f"  {_seconds(running['seconds'])}"
            text = out.fit(f"{which}{command}", max(20, out.width() - len(seconds) - 1))
            print(f"\r\x1b[K{text}{seconds}", end="", file=sys.stderr, flush=True)
        elif self.last != (running["attempt"], command):
            print(f"running {which}{command}", file=sys.stderr, flush=True)
        self.last = (running["attempt"], command)

    def clear(self) -> None:
        if self.terminal and self.last[1]:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self.last = (0, "")


def agree_to_configured(ao: Client, path: str, *, yes: bool) -> None:
    """See that the commands which a project's file has are trusted; asks on a terminal, raises `Denied` where nobody agrees."""
    found = ao.get("/api/projects/trust", {"path": path})
    if found["trusted"] or not found["commands"]:
        return
    if not yes:
        refused = Denied(
            f"the commands of {found['file']} are not trusted, so nothing was run", "ao init --check --yes, or ao trust"
        )
        if not can_answer():
            raise refused
        print(f"{out.one_line(found['project'])} would run:", file=sys.stderr)
        for each in found["commands"]:
            print(f"  {out.one_line(each)}", file=sys.stderr)
        if not click.confirm(QUESTION, default=True, err=True):
            raise refused
    ao.post("/api/projects/trust", {"path": path, "digest": found["digest"]})


# -- what is shown -----------------------------------------------------------------------------------------------------


def _detected(project: Json, proposal: Json) -> list[str]:
    first, *others = proposal["candidates"]
    rows = [
        ("default branch", project.get("defaultBranch") or "unknown"),
        ("remote", project.get("repo") or "none"),
        ("agent", project.get("agent") or "none"),
        ("detected", f"{first['ecosystem']} ({', '.join(first['evidence'])})"),
        ("set-up", _joined(first["setUp"]) or "none needed"),
        ("test", first["test"] or "none"),
        ("lint", first["lint"] or "none"),
        *([("agents may run", ", ".join(proposal["commands"]))] if proposal["commands"] else []),
        *(("otherwise", f"{one['ecosystem']}: {_way(one)}") for one in others),
    ]
    return [f"  {name:<16}{out.one_line(value)}" for name, value in rows]


def _way(candidate: Json) -> str:
    return "; ".join(filter(None, [_joined(candidate["setUp"]), candidate["test"]])) or "nothing"


def _joined(commands: list[str]) -> str:
    return " && ".join(commands)


def proof_lines(proof: Json) -> list[str]:
    """What a proof says: one line where it works; else why not, what was tried, and how to set it."""
    if not proof["tried"]:
        lines = ["Nothing was run. To prove these commands: ao init --check"]
    else:
        lines = [_sentence(proof)] if proof["proven"] else _not_proven(proof)
    if proof["proven"]:
        for check in proof["checks"]:
            named = check["failures"][:_SHOWN_FAILURES] if check["state"] == "failure" else []
            lines += [f"  {out.one_line(_failure(one))}" for one in named]
            if more := len(check["failures"]) - len(named) if named else 0:
                lines.append(f"  and {more} more")
    lines += [f"left out: {out.one_line(each)}" for each in proof["leftOut"]]
    if proof["written"]:
        lines.append(f"wrote {out.one_line(proof['written'])}")
        lines += [f"  {name:<16}{out.one_line(value)}" for name, value in _written(proof)]
    lines += [f"differs: {out.one_line(each)}" for each in proof["drift"]]
    return lines


def _written(proof: Json) -> list[tuple[str, str]]:
    set_up = _joined(proof["setUp"]["commands"])
    return [
        *([("postCreate", set_up)] if set_up else []),
        *(("ci" if each["name"] == "default" else f"ci.{each['name']}", each["command"]) for each in proof["checks"]),
    ]


def _sentence(proof: Json) -> str:
    """`set-up 12 s; 295 passed, 2 failed on main, 4.1 s`."""
    several = len(proof["checks"]) > 1
    words = [f"set-up {_seconds(proof['setUp']['seconds'])}"] if proof["setUp"]["commands"] else []
    for check in proof["checks"]:
        name = f"{check['name']}: " if several else ""
        words.append(f"{name}{_outcome(check, proof['base'])}, {_seconds(check['seconds'])}")
    if not proof["checks"]:
        words.append("no test command was found")
    return out.one_line("; ".join(words))


def _outcome(check: Json, base: str) -> str:
    counts = (
        [f"{check[kind]} {kind}" for kind in ("passed", "failed") if check[kind]] if check["passed"] is not None else []
    )
    if check["state"] == "failure":
        return f"{', '.join(counts) or 'fails'} on {base}"
    passes = ", ".join(counts) or "passes"
    return f"{passes} (flaky)" if check["state"] == "flaky" else passes


def _failure(failure: Json) -> str:
    return f"{failure['name']}: {failure['message']}" if failure["message"] else str(failure["name"])


def _not_proven(proof: Json) -> list[str]:
    project = shlex.quote(proof["project"])
    lines = [f"Not proven: {out.one_line(proof['reason'])}"]
    lines += [f"  tried {out.one_line(_way(one))}: {out.one_line(one['reason'] or 'works')}" for one in proof["tried"]]
    said = [line for line in out.clean(proof["summary"]).splitlines()[1:] if line.strip()]
    lines += [f"    {line}" for line in said[-_SHOWN_LINES:]]
    return [
        *lines,
        "Set the commands, then prove them:",
        f"  ao config set projects.{project}.postCreate '[COMMAND]'",
        f"  ao config set projects.{project}.ci.command COMMAND",
        "  ao init --check",
    ]


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value >= 10 else f"{value:.1f} s"
