"""What to check (`CheckSpec`: one check of one commit) and how much of the results is kept (`Limits`)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_SAFE_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,80}")
_RUNS_TESTS = re.compile(
    r"(?<![\w-])(?:pytest|py\.test|unittest|nose2?|tox|nox|manage\.py test|runtests(?:\.py)?|trial|stestr|mocha|tape|tap|ava|jest|vitest"
    r"|jasmine|node (?:\S+ )*--test|(?:npm|pnpm|yarn|bun)(?: run)? (?:test|t)|go test|cargo (?:test|t|nextest)|ctest|meson test|prove)"
    r"(?![\w-])"
)
_TARGET = re.compile(r"(?<![\w-])(?:make|just|task|run)\s(?:[^\s;&|]+\s)*?(?:tests?|check)(?![\w-])")
_PROGRAM = re.compile(r"(?:^|[;&|])\s*(?:(?:ba|z)?sh\s)?\s*([\w./-]+)")


@dataclass(frozen=True, slots=True)
class CheckSpec:
    """One check of one commit, with the project's set-up."""

    project: str
    repo: Path
    """The user's checkout, or the bare repository, that contains the commit. Nothing in it is changed."""
    commit: str
    name: str
    command: str
    timeout: float = 1800.0
    """Seconds that the command may take; waiting for a slot and the set-up do not count."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The complete environment, not an addition to ours; `CI=1` is added unless it is set here."""
    copy: tuple[str, ...] = ()
    symlinks: tuple[str, ...] = ()
    post_create: tuple[str, ...] = ()
    base: str | None = None
    """Name of the base branch; the checkout has a branch of that name."""
    never_compared: bool = False
    """Whether a failure always belongs to the change: it is not compared with the base and not run again to find flaky tests."""
    parallel: int = 1
    """The check starts only while fewer checks than this run for the project."""
    from_scratch: bool = False
    """Run the set-up again instead of using that of an earlier check, and list what the run leaves behind."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much output, and how many checkouts and results are kept."""

    log_head: int = 40 << 20
    """Bytes of output kept from its start."""
    log_tail: int = 8 << 20
    """Bytes of output kept from its end, if it is longer than `log_head`."""
    set_up_timeout: float = 1800.0
    """Seconds that one set-up command may take."""
    kill_timeout: float = 2.0
    """Seconds between asking a command that timed out to end and killing it."""
    max_prepared: int = 3
    """Checkouts with a finished set-up that are kept per project."""
    max_result_age: float = 30 * 86400.0
    """Seconds after which an unused result is deleted."""


def safe_file_name(name: str) -> str:
    """Return the name itself if it can be a file's name, otherwise one made from it."""
    if _SAFE_FILE_NAME.fullmatch(name):
        return name
    safe_part = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:40].strip("-")
    return f"{safe_part or 'check'}~{hashlib.sha256(name.encode(errors='surrogateescape')).hexdigest()[:10]}"


def digest(*parts: object) -> str:
    """Return a short digest of exactly these values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def runs_tests(command: str) -> bool:
    """Return whether a command contains a known test runner that prints the tests it runs."""
    return _RUNS_TESTS.search(command) is not None


def may_run_tests(command: str) -> bool:
    """Return whether a command names a test runner, or is called as commands that run tests are: `make test`, `./run-tests.sh`."""
    is_script = any("test" in program and program != "test" for program in _PROGRAM.findall(command))
    return runs_tests(command) or is_script or _TARGET.search(command) is not None
