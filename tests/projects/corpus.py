"""The description of one real project: where it comes from, how it is really set up and tested, and a bug that its own tests find."""

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
class Change:
    """Replaces `old`, which is in `file` exactly once, by `new`."""

    file: str
    old: str
    new: str

    def apply(self, tree: Path) -> None:
        """Change the file in this tree; an error if `old` is not there exactly once."""
        path = tree / self.file
        text = path.read_bytes().decode()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file}: {self.old!r} is there {text.count(self.old)} times, not once")
        path.write_bytes(text.replace(self.old, self.new).encode())


@dataclasses.dataclass(frozen=True, slots=True)
class Project:
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
    bug: Change
    accepted: Sequence[int] = ()
    """Other numbers of passing tests that a right test command may show."""
    tools: Sequence[str] = ()
    """Commands of tools.toml that a developer of this project has installed."""
    packages: Sequence[str] = ()
    """Debian packages that it needs."""
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Variables that its developers set in their login environment."""
    tag: str = ""
    """The tag of its version, `v<version>` unless given."""
    remove: Sequence[str] = ()
    """What the registry's archive has and the project's repository has not (patterns)."""
    patches: Sequence[Change] = ()
    """Changes without which it fails on this machine, bug or not."""

    @property
    def needs_set_up(self) -> bool:
        """Whether its tests need a set-up."""
        return bool(self.set_up)


def load(path: Path) -> Project:
    """The project that a file describes; `ValueError` names the file and the field that is wrong."""
    try:
        given = tomllib.loads(path.read_text())
        bug = Change(**given.pop("bug"))
        patches = tuple(Change(**one) for one in given.pop("patches", ()))
        project = Project(name=path.stem, bug=bug, patches=patches, **given)
        _check(project, given)
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{path.name}: {error}") from None
    return project


def _check(project: Project, given: Mapping[str, Any]) -> None:
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
        if not all(isinstance(one, str) for one in given.get(field, ())):
            raise ValueError(f"{field}: a list of texts is needed")


def corpus(only: Sequence[str] = ()) -> list[Project]:
    """All projects, or those with these names; `ValueError` for a name that is none."""
    projects = [load(path) for path in sorted(FOLDER.glob("*.toml"))]
    if unknown := set(only) - {one.name for one in projects}:
        raise ValueError(f"no such project: {', '.join(sorted(unknown))}")
    return [one for one in projects if not only or one.name in only]
