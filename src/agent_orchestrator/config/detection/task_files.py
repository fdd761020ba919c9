"""Makefiles, justfiles and task files as a way to test: used if there is no native runner, or if the project documents them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from agent_orchestrator.config.detection import makefile
from agent_orchestrator.config.detection.ci_files import CiJob
from agent_orchestrator.config.detection.commands import DetectedCommands
from agent_orchestrator.config.detection.files import RepositoryFiles

_OTHER_ENVIRONMENTS = re.compile(r"\b(?:tox|nox|docker|docker-compose|podman|vagrant|twine)\b")
_DOCUMENTS = (
    "CONTRIBUTING.md",
    "CONTRIBUTING.rst",
    "CONTRIBUTING",
    "README.md",
    "README.rst",
    "README",
    "README.txt",
    "DEVELOPMENT.md",
    "HACKING.md",
)


def find_candidates(repo: RepositoryFiles) -> Iterator[DetectedCommands]:
    """Yield the tasks that test, the Makefile's first."""
    names = makefile.targets(repo)
    for name in ("test", "check", "tests"):
        if name in names:
            yield DetectedCommands(
                "make",
                test=f"make {name}",
                lint="make lint" if "lint" in names else None,
                evidence=(repo.first_existing(*makefile.MAKEFILE_NAMES) or "Makefile",),
            )
            break
    justfile = repo.first_existing("justfile", "Justfile", ".justfile")
    if justfile and re.search(r"^@?test\b[^:=\n]*:(?!=)", repo.text(justfile), re.MULTILINE):
        lint = re.search(r"^@?lint\b[^:=\n]*:(?!=)", repo.text(justfile), re.MULTILINE)
        yield DetectedCommands("just", test="just test", lint="just lint" if lint else None, evidence=(justfile,))
    taskfile = repo.first_existing("Taskfile.yml", "Taskfile.yaml", "taskfile.yml")
    if taskfile and re.search(r"^ {1,8}test:", repo.text(taskfile), re.MULTILINE):
        lint = re.search(r"^ {1,8}lint:", repo.text(taskfile), re.MULTILINE)
        yield DetectedCommands("task", test="task test", lint="task lint" if lint else None, evidence=(taskfile,))


def is_documented(repo: RepositoryFiles, command: str, jobs: Sequence[CiJob]) -> bool:
    """Return whether CI or a document of the project runs this task, and the task runs on this machine alone."""
    program, _, target = command.partition(" ")
    lines = "\n".join(makefile.recipe(repo, target)) if program == "make" else ""
    if _OTHER_ENVIRONMENTS.search(lines) or len(set(re.findall(r"3\.\d+", lines))) > 1:
        return False
    if any(words[:2] == (program, target) for job in jobs for words in job.commands):
        return True
    pattern = re.compile(rf"(?:^|[`$\s]){re.escape(command)}(?![\w-])", re.MULTILINE)
    return any(pattern.search(repo.text(name)) for name in _DOCUMENTS if name in repo.top_level_names)
