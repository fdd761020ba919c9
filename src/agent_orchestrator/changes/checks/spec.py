"""What is asked for: one check of one commit."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,80}")
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
    """The user's checkout, or the bare repository, that has the commit. Nothing in it is changed."""
    commit: str
    name: str
    command: str
    timeout: float = 1800.0
    """Seconds that the command may take; waiting for a place and set-up do not count."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The whole environment, not an addition to ours; `CI=1` comes on top unless it says otherwise."""
    copy: tuple[str, ...] = ()
    symlinks: tuple[str, ...] = ()
    post_create: tuple[str, ...] = ()
    base: str | None = None
    """Name of the base branch, which the checkout is to know by that name."""
    own: bool = False
    """Its failure is the change's own, whatever it says of the base, and it tells by itself what fails by chance."""
    parallel: int = 1
    """Starts only while fewer checks than this run for the project."""
    from_scratch: bool = False
    """The set-up is run anew, not taken from an earlier check, and what the run leaves behind is listed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of what is kept."""

    log_head: int = 40 << 20
    """Bytes of output kept from its start."""
    log_tail: int = 8 << 20
    """Bytes of output kept from its end, where there is more than that."""
    set_up: float = 1800.0
    """Seconds that one set-up command may take."""
    grace: float = 2.0
    """Seconds between asking what ran out of time to end and killing it."""
    prepared: int = 3
    """Checkouts with finished set-up kept for the next check of a project."""
    results_age: float = 30 * 86400.0
    """Seconds after which a result nobody asked for is forgotten."""


def file_name(name: str) -> str:
    """The name itself where it may be a file's name, otherwise one made from it."""
    if _SAFE.fullmatch(name):
        return name
    kept = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:40].strip("-")
    return f"{kept or 'check'}~{hashlib.sha256(name.encode(errors='surrogateescape')).hexdigest()[:10]}"


def digest(*parts: object) -> str:
    """A short name for exactly these values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def runs_tests(command: str) -> bool:
    """Return whether a command names a test runner that is known to say what it runs."""
    return _RUNS_TESTS.search(command) is not None


def may_run_tests(command: str) -> bool:
    """Return whether a command names a test runner, or is called as commands that run tests are: `make test`, `./run-tests.sh`."""
    is_script = any("test" in program and program != "test" for program in _PROGRAM.findall(command))
    return runs_tests(command) or is_script or _TARGET.search(command) is not None
