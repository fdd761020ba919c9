"""Read what a project's CI runs, line by line, from `.github/workflows`, `.gitlab-ci.yml` and `.travis.yml`. Nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from agent_orchestrator.config.detection.commands import Words, split_commands
from agent_orchestrator.config.detection.files import RepositoryFiles

MAX_CI_FILES = 30
MAX_CI_FILE_BYTES = 128 << 10
MAX_COMMANDS = 400
_NON_TEST_JOBS = re.compile(
    r"release|publish|cover|deploy|docs?\b|codeql|stale|label|lock|dependabot|bench|perf|nightly|zizmor|scorecard|codspeed|downstream|wheel"
)
_USUAL_TEST_JOBS = re.compile(r"/(?:tests?|ci|main|build|python-package|python-app|node)\b|\.gitlab-ci|\.travis")
_KEY = re.compile(r"( *)([\w.-]+|\"[^\"]{1,80}\"):(?:\s+(.*))?$")


@dataclass(frozen=True, slots=True)
class CiJob:
    """One job of a CI file: its commands in order."""

    file: str
    name: str
    commands: tuple[Words, ...]
    has_services: bool = False
    """Whether services such as databases run with it, which a developer's machine may not have."""


def read_ci_jobs(repo: RepositoryFiles) -> list[CiJob]:
    """Return the jobs of a repository's CI files: those that test a change before those that release, document or measure."""
    all_jobs = [job for name in _files(repo) for job in _jobs(repo, name)]
    return sorted(all_jobs, key=_order)


def _order(job: CiJob) -> tuple[bool, bool, bool]:
    return (
        bool(_NON_TEST_JOBS.search(f"{job.file} {job.name}".lower())),
        job.has_services,
        not _USUAL_TEST_JOBS.search(job.file),
    )


def _files(repo: RepositoryFiles) -> Iterator[str]:
    folder = ".github/workflows"
    yield from (
        f"{folder}/{name}" for name in repo.list_folder(folder)[:MAX_CI_FILES] if name.endswith((".yml", ".yaml"))
    )
    yield from (name for name in (".gitlab-ci.yml", ".travis.yml") if name in repo.top_level_names)


def _jobs(repo: RepositoryFiles, name: str) -> Iterator[CiJob]:
    lines = [
        line.rstrip()
        for line in repo.text(name, MAX_CI_FILE_BYTES).splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    ]
    by_steps = name.startswith(".github")
    for title, block in _blocks(lines, "jobs" if by_steps else None):
        scripts = _steps(block) if by_steps else _scripts(block)
        commands = [words for script in scripts for line in _shell_lines(script) for words in split_commands(line)]
        if commands:
            services = any(line.strip() == "services:" for line in block)
            yield CiJob(name, title, tuple(commands[:MAX_COMMANDS]), services)


def _blocks(lines: list[str], below: str | None) -> Iterator[tuple[str, list[str]]]:
    """Yield the keys of the top level, or of the mapping `below` in it, each with its lines. A key with an inline value is one line."""
    if below is not None:
        start = next((position for position, line in enumerate(lines) if line == f"{below}:"), None)
        if start is None:
            return
        end = next(
            (position for position in range(start + 1, len(lines)) if not lines[position].startswith(" ")), len(lines)
        )
        lines = lines[start + 1 : end]
    width = _indent(lines[0]) if lines else 0
    title, block = "", list[str]()
    for line in lines:
        if _indent(line) <= width and (match := _KEY.match(line)):
            if block:
                yield title, block
            title, block = match[2], []
        block.append(line)
    if block:
        yield title, block


def _steps(block: list[str]) -> Iterator[str]:
    """Yield what the steps of a job run in the repository's top folder."""
    position = next((position for position, line in enumerate(block) if line.strip() == "steps:"), len(block))
    head, lines = block[:position], block[position + 1 :]
    if not lines or any(_in_other_folder(line) for line in head):
        return
    width = _indent(lines[0])
    step: list[str] = []
    for line in [*lines, " " * width + "- "]:
        if _indent(line) == width and line.lstrip().startswith("-"):
            if step and not any(_in_other_folder(step_line) for step_line in step):
                yield from _values(step, ("run",))
            step = []
        step.append(line)


def _in_other_folder(line: str) -> bool:
    match = re.match(r"\s*(?:- )?working-directory:\s*(.*)$", line)
    return bool(match and match[1].strip("'\"./ "))


def _scripts(block: list[str]) -> Iterator[str]:
    """Yield what a GitLab or Travis job runs, including its preparation."""
    yield from _values(block, ("before_install", "before_script", "install", "script", "test"))


def _values(lines: list[str], keys: tuple[str, ...]) -> Iterator[str]:
    """Yield the values of these keys: inline, as a block, or as a list."""
    for position, line in enumerate(lines):
        match = re.match(r"(\s*(?:- +)?)([\w.-]+):(?:\s+(.*))?$", line)
        if not match or match[2] not in keys:
            continue
        value_lines = []
        for next_line in lines[position + 1 :]:
            if _indent(next_line) < len(match[1]) or (
                _indent(next_line) == len(match[1]) and not next_line.lstrip().startswith("- ")
            ):
                break
            value_lines.append(next_line.strip())
        value = match[3] or ""
        if value[:1] in ("|", ">"):
            yield (" " if value[0] == ">" else "\n").join(value_lines)
        elif value:
            yield _unquote(value)
        else:
            yield "\n".join(
                _unquote(value_line[2:].strip()) if value_line.startswith("- ") else value_line
                for value_line in value_lines
            )


def _unquote(value: str) -> str:
    """Return a scalar without quotes and without a trailing comment."""
    if len(value) > 1 and value[0] in "\"'" and value[-1] == value[0]:
        return value[1:-1].replace('\\"', '"') if value[0] == '"' else value[1:-1].replace("''", "'")
    return re.sub(r"\s#.*$", "", value)


def _shell_lines(script: str) -> list[str]:
    """Return the lines of a script, with expressions that CI fills in replaced by `{}`."""
    joined = re.sub(r"\\\n\s*", " ", script)
    return [line for line in re.sub(r"\$\{\{[^}\n]*\}\}", "{}", joined).splitlines() if line.strip()]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
