"""Targets that read the output of tools: test runners, linters, compilers, Git; on files that an agent named and wrote."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
from dataclasses import asdict
from pathlib import Path

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.git.refs import escape_for_ref, is_valid_branch
from agent_orchestrator.base.git.settings import clean_environment
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.changes.checks.junit import read_cases
from agent_orchestrator.changes.checks.missing_environment import missing_environment
from agent_orchestrator.changes.checks.results import Results
from agent_orchestrator.changes.checks.runners import read_outcome
from agent_orchestrator.changes.checks.summary import relevant_output
from agent_orchestrator.changes.conflicts.hunks import overlaps, parse_sections
from agent_orchestrator.changes.conflicts.tree_changes import parse_changes
from agent_orchestrator.fleet.fixes.measure import parse_output
from agent_orchestrator.fleet.fixes.model import CheckTool
from agent_orchestrator.fleet.fixes.parsers.common import ToolOutput
from agent_orchestrator.fleet.fixes.tools import PARSERS
from tests.fuzz.target import FuzzTarget
from tests.fuzz.texts import folder

REPORTS = Path(__file__).parents[1] / "unit/fleet/fixes/reports"
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def reports(data: bytes) -> None:
    """Check that every parser returns something that can be stored and shown."""
    text = data.decode(errors="replace")
    with folder() as folder_path:
        file = folder_path / "junit.xml"
        file.write_bytes(data)
        for kind in PARSERS:
            for out, err in ((text, ""), ("", text)):
                measurement = parse_output(
                    ToolOutput(CheckTool(kind, "x"), 1, out, err, "/checkout", (file,)), plain=kind == "command"
                )
                json.dumps(
                    [asdict(failure) for failure in measurement.failures], allow_nan=False, ensure_ascii=False
                ).encode()
                json.dumps([measurement.tests, measurement.hidden, measurement.problem], ensure_ascii=False).encode()
        with contextlib.suppress(ValueError):
            read_cases(file)


def summaries(data: bytes) -> None:
    """Check that the relevant part of a log is short and has no escape sequences."""
    text = data.decode(errors="replace")
    summary = relevant_output(text, 500)
    assert len(summary) <= 700, len(summary)
    assert "\x1b" not in summary
    for code in (0, 1):
        outcome = read_outcome(text, [], exit_code=code)
        assert bool(outcome.failures) == bool(code)
        json.dumps([asdict(outcome), missing_environment(text, outcome, exit_code=code)], ensure_ascii=False).encode()
        counts = outcome.counts
        assert counts is None or (min(counts.passed, counts.failed, counts.skipped) >= 0 and counts.total < 1 << 63)


def results(data: bytes) -> None:
    """Check that a damaged stored result is ignored."""
    with folder() as folder_path:
        store = Results(folder_path)
        log = store.log("p", "t", "n")
        log.parent.mkdir(parents=True)
        for file in (log.with_suffix(".json"), log.parent / "n.json"):
            file.write_bytes(data)
        store.read("p", "t", "n", "k")


def git_names(data: bytes) -> None:
    """Check that files with any name are listed by that name."""
    names = [name for part in data.split(b"\0")[:6] if (name := _name(part))]
    with folder() as folder_path:
        env = {**clean_environment(), **_env(folder_path)}
        repo = folder_path / "repo"
        subprocess.run(["git", "init", "-q", "-b", "main", repo], check=True, env=env)
        created: set[str] = set()
        for number, name in enumerate(names):
            path = repo / os.fsdecode(name)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data * (number % 2) + b"%d\n" % number)
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                continue
            created.add(os.fsdecode(name))

        async def compare_with_git() -> None:
            git = Git(LocalHost(), repo, env)
            assert {change.path for change in await git.status()} == created
            await git.run("add", "--all")
            tree = await git.text("write-tree")
            staged = await git.status()
            assert {change.path for change in staged} == created
            pairs = f"{EMPTY_TREE} {tree}\n".encode()
            listed = await git.run("diff-tree", "--stdin", "-r", "-z", "--name-status", input=pairs)
            changes = parse_changes(os.fsdecode(listed.out))
            assert len(changes) <= 1
            patch = await git.run("diff-tree", "--stdin", "-p", "-W", "-U0", "-z", input=pairs)
            sections = parse_sections(os.fsdecode(patch.out))
            for files in sections.values():
                for hunks in files.values():
                    overlaps(hunks, hunks)

        asyncio.run(compare_with_git())


def _name(part: bytes) -> bytes:
    pieces = [piece[:60] for piece in part[:120].split(b"/") if piece not in (b"", b".", b"..")]
    return b"/".join(piece for piece in pieces if piece.lower().rstrip(b" .") not in (b".git", b"git~1"))


def _env(place: Path) -> dict[str, str]:
    return {"HOME": str(place), "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "P", "GIT_AUTHOR_EMAIL": "p@x.invalid"}


def patches(data: bytes) -> None:
    """Check that any patch can be parsed."""
    text = os.fsdecode(data)
    for files in parse_sections(text).values():
        for hunks in files.values():
            overlaps(hunks, hunks)


def branches(data: bytes) -> None:
    """Check that names accepted as branches are valid for Git, and that escaped names are valid in refs."""
    name = data.decode(errors="replace")
    assert is_valid_branch(f"feature/{escape_for_ref(name)}") or not escape_for_ref(name)
    if is_valid_branch(name):
        completed = subprocess.run(["git", "check-ref-format", "--branch", name], capture_output=True)
        assert completed.returncode == 0, name


TARGETS = (
    FuzzTarget(
        "reports", reports, "json", (b"FAILED x::y - z\n", b"error[E0308]: x\n", b"<testcase ", b"/>"), 30, (REPORTS,)
    ),
    FuzzTarget("summaries", summaries, "lines", (b"Error: x\n", b"1 failed", b"Traceback\n"), 20, (REPORTS,)),
    FuzzTarget("results", results, "json"),
    FuzzTarget("git-names", git_names, "bytes", (b"\0", b"/", b'"', b"\n", b"\t", b" -> ", b"--- a/x"), 3),
    FuzzTarget(
        "patches", patches, "lines", (b"\n@@ -1,2 +3 @@\n", b"\n--- a/x\n", b"\ndiff --git ", b"@@ -0,0 +1"), 20
    ),
    FuzzTarget("branches", branches, "bytes", (b"..", b".lock", b"@{", b"~", b"/", b"-", b"\\"), 12),
)
