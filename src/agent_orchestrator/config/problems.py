"""Problems and warnings of a configuration file, collected while it is read and reported together."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from agent_orchestrator.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Problem:
    """One error, and where it is."""

    line: int
    key: str
    text: str
    remedy: str = ""

    def location_line(self, file: str) -> str:
        """Return one line that names file, line and key."""
        key = f"{self.key}: " if self.key else ""
        return f"{file}:{self.line}: {key}{self.text}"

    def line_with_remedy(self, file: str) -> str:
        """Return the same line with its remedy."""
        return self.location_line(file) + (f": {self.remedy}" if self.remedy else "")


class InvalidConfig(ConfigError):
    """Raised for a file with problems. The first line of the text is the main problem; the others follow, one per line."""

    def __init__(self, file: str, problems: Iterable[Problem]) -> None:
        self.file = file
        self.problems = tuple(problems)
        if len(self.problems) == 1:
            super().__init__(self.problems[0].location_line(file), self.problems[0].remedy)
        else:
            super().__init__("\n".join(problem.line_with_remedy(file) for problem in self.problems))


class ConfigNotes:
    """Collector of the problems and warnings of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._problems: list[Problem] = []
        self._warnings: list[str] = []
        self._warned_keys: set[str] = set()
        self.variables: set[str] = set()
        """Names that were filled in from the environment."""
        self.has_unread_secrets = False
        """Whether secrets of the keyring were left as references."""

    def add_problem(self, line: int, key: str, text: str, remedy: str = "") -> None:
        """Add a problem."""
        self._problems.append(Problem(line, _visible(key), _visible(text), _visible(remedy)))

    def add_warning(self, line: int, key: str, text: str, once: str = "") -> None:
        """Add a warning, only once for each value of `once`."""
        if once and once in self._warned_keys:
            return
        self._warned_keys.add(once)
        self._warnings.append(Problem(line, _visible(key), _visible(text)).location_line(self.file))

    @property
    def warnings(self) -> tuple[str, ...]:
        """All warnings so far, one per line."""
        return tuple(self._warnings)

    def raise_problems(self) -> None:
        """Raise `InvalidConfig` if there are problems, in the order of the file."""
        if self._problems:
            ordered = sorted(dict.fromkeys(self._problems), key=lambda problem: problem.line)
            raise InvalidConfig(self.file, ordered[:20])


def _visible(text: str) -> str:
    """Return text of the file that is safe to print on a terminal: the file may come from a stranger and contain control characters."""
    return "".join(character if character.isprintable() else "?" for character in text)


def nearest(name: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name that was probably meant, or None."""
    names_by_folded = {candidate.lower().replace("_", "").replace("-", ""): candidate for candidate in candidates}
    folded = name.lower().replace("_", "").replace("-", "")[:80]
    matches = difflib.get_close_matches(folded, names_by_folded, n=1, cutoff=cutoff)
    return names_by_folded[matches[0]] if matches else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return a remedy that names the closest known name, or all of them if none is close and they are few."""
    names = sorted(candidates)
    if match := nearest(name, names):
        return f'did you mean "{match}"?'
    return f"accepted here: {', '.join(names)}" if 0 < len(names) <= 30 else ""
