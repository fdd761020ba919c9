"""The description of one real project: its source, how it is set up and tested, and a bug that its tests find."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.projects.counts import RUNNERS

FOLDER = Path(__file__).parent / "corpus"
REGISTRIES = ("pypi", "npm", "debian")


@dataclasses.dataclass(frozen=True, slots=True)
class Replacement:
    """A replacement of `old`, which occurs in `file` exactly once, by `new`."""

    file: str
    old: str
    new: str

    def apply(self, tree: Path) -> None:
        """Change the file in this tree; raise `ValueError` if `old` does not occur exactly once."""
        path = tree / self.file
        text = path.read_bytes().decode()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file}: {self.old!r} is there {text.count(self.old)} times, not once")
        path.write_bytes(text.replace(self.old, self.new).encode())


@dataclasses.dataclass(frozen=True, slots=True)
class CorpusProject:
    """One project of the corpus; docs/testing.md explains the fields."""

    name: str
    registry: str
    package: str
    version: str
    sha256: str
    kind: str
    runner: str
    set_up: Sequence[str]
    test: str
    passed: int
    bug: Replacement
    accepted: Sequence[int] = ()
    """Other numbers of passing tests that a correct test command may show."""
    tools: Sequence[str] = ()
    """Commands of tools.toml that developers of this project have installed."""
    packages: Sequence[str] = ()
    """Debian packages that the project needs."""
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Environment variables that its developers set at login."""
    tag: str = ""
    """The tag of its version, `v<version>` unless given."""
    remove: Sequence[str] = ()
    """Patterns of files that are in the registry's archive but not in the project's repository."""
    patches: Sequence[Replacement] = ()
    """Changes without which its tests fail on this machine, with or without the bug."""

    @property
    def needs_set_up(self) -> bool:
        """Return whether its tests need a set-up."""
        return bool(self.set_up)


def load(path: Path) -> CorpusProject:
    """Return the project that a file describes; raise `ValueError` with the file and the wrong field."""
    try:
        fields = tomllib.loads(path.read_text())
        bug = Replacement(**fields.pop("bug"))
        patches = tuple(Replacement(**patch) for patch in fields.pop("patches", ()))
        project = CorpusProject(name=path.stem, bug=bug, patches=patches, **fields)
        _check(project, fields)
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{path.name}: {error}") from None
    return project


def _check(project: CorpusProject, fields: Mapping[str, Any]) -> None:
    if project.registry not in REGISTRIES:
        raise ValueError(f"registry: {project.registry} is none of {', '.join(REGISTRIES)}")
    if project.runner not in RUNNERS:
        raise ValueError(f"runner: {project.runner} is none of {', '.join(RUNNERS)}")
    if not re.fullmatch(r"[0-9a-f]{64}", project.sha256):
        raise ValueError("sha256: 64 hexadecimal digits are needed")
    if not (project.passed > 0 and project.test and project.kind and project.package and project.version):
        raise ValueError("test, kind, package, version and passed are needed")
    if project.bug.old == project.bug.new:
        raise ValueError("bug: old and new are the same")
    for field in ("set_up", "tools", "packages", "remove"):
        if not all(isinstance(value, str) for value in fields.get(field, ())):
            raise ValueError(f"{field}: a list of texts is needed")


def load_corpus(only: Sequence[str] = ()) -> list[CorpusProject]:
    """Return all projects, or those with these names; raise `ValueError` for unknown names."""
    projects = [load(path) for path in sorted(FOLDER.glob("*.toml"))]
    if unknown := set(only) - {project.name for project in projects}:
        raise ValueError(f"no such project: {', '.join(sorted(unknown))}")
    return [project for project in projects if not only or project.name in only]
