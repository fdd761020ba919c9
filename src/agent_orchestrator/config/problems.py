"""What is wrong or odd in a configuration file, gathered while it is read and told at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from agent_orchestrator.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and where."""

    line: int
    key: str
    text: str
    remedy: str = ""

    def at(self, file: str) -> str:
        """One line that names file, line and key."""
        key = f"{self.key}: " if self.key else ""
        return f"{file}:{self.line}: {key}{self.text}"

    def told(self, file: str) -> str:
        """The same with its remedy."""
        return self.at(file) + (f": {self.remedy}" if self.remedy else "")


class InvalidConfig(ConfigError):
    """A file with problems. The first line of its text is the main one; the others follow, a line each."""

    def __init__(self, file: str, problems: Iterable[Problem]) -> None:
        self.file = file
        self.problems = tuple(problems)
        if len(self.problems) == 1:
            super().__init__(self.problems[0].at(file), self.problems[0].remedy)
        else:
            super().__init__("\n".join(problem.told(file) for problem in self.problems))


class Notes:
    """Gathers the problems and warnings of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._problems: list[Problem] = []
        self._warnings: list[str] = []
        self._told: set[str] = set()
        self.variables: set[str] = set()
        """Names that were filled in from the environment."""
        self.unasked = False
        """Secrets of the keyring stand there by their names."""

    def problem(self, line: int, key: str, text: str, remedy: str = "") -> None:
        """Something is wrong."""
        self._problems.append(Problem(line, _visible(key), _visible(text), _visible(remedy)))

    def warn(self, line: int, key: str, text: str, once: str = "") -> None:
        """Something is odd; told once for each `once`."""
        if once and once in self._told:
            return
        self._told.add(once)
        self._warnings.append(Problem(line, _visible(key), _visible(text)).at(self.file))

    @property
    def warnings(self) -> tuple[str, ...]:
        """All warnings so far, a line each."""
        return tuple(self._warnings)

    def check(self) -> None:
        """Raise if there were problems, in the order of the file."""
        if self._problems:
            ordered = sorted(dict.fromkeys(self._problems), key=lambda p: p.line)
            raise InvalidConfig(self.file, ordered[:20])


def _visible(words: str) -> str:
    """Words of the file as a terminal may show them: it may come from a stranger, and be there to be obeyed."""
    return "".join(letter if letter.isprintable() else "?" for letter in words)


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that was probably meant."""
    by_folded = {k.lower().replace("_", "").replace("-", ""): k for k in known}
    folded = name.lower().replace("_", "").replace("-", "")[:80]
    found = difflib.get_close_matches(folded, by_folded, n=1, cutoff=cutoff)
    return by_folded[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A remedy that names the nearest known name, or all of them where none is near and they are few."""
    names = sorted(known)
    if near := nearest(name, names):
        return f'did you mean "{near}"?'
    return f"accepted here: {', '.join(names)}" if 0 < len(names) <= 30 else ""
