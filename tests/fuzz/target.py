"""A fuzz target: a check that any bytes must pass, and its corpus of stored inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from tests.fuzz.mutations import mutations, replace_each_value

CORPORA = Path(__file__).parent / "corpora"


@dataclass(frozen=True)
class FuzzTarget:
    """A function that reads bytes from outside."""

    name: str
    check: Callable[[bytes], object]
    """Raises if the input breaks the target."""
    shape: str = "lines"
    words: tuple[bytes, ...] = ()
    examples: int = 15
    """The number of mutations that are tried with the other tests."""
    seeds: tuple[Path, ...] = ()
    """Files and folders elsewhere in the tests that are used as seeds too."""
    inputs: SearchStrategy[bytes] | None = None
    """The inputs to try instead of mutations of the seeds."""

    def corpus_files(self) -> list[Path]:
        """Return the files that are replayed: seeds, and inputs that once broke the target."""
        return sorted(path for path in (CORPORA / self.name).iterdir() if path.is_file())

    def strategy(self) -> SearchStrategy[bytes]:
        """Return the inputs to try."""
        if self.inputs is not None:
            return self.inputs
        files = [*self.corpus_files(), *_files(self.seeds)]
        return mutations([path.read_bytes() for path in files], self.shape, self.words)

    def replay(self) -> None:
        """Check all stored inputs."""
        for path in self.corpus_files():
            try:
                self.check(path.read_bytes())
            except Exception as error:
                error.add_note(f"{self.name} is broken by {path}")
                raise

    def replace_each(self) -> None:
        """Check each stored input followed by its lines with single values replaced by unusual ones."""
        for path in self.corpus_files():
            for lines in replace_each_value(path.read_bytes()):
                data = b"\n".join([path.read_bytes().rstrip(b"\n"), *lines, b""])
                try:
                    self.check(data)
                except Exception as error:
                    single_line = next(
                        (line for line in lines if self._is_broken_by(path.read_bytes() + line + b"\n")), data
                    )
                    error.add_note(f"{self.name} is broken by {single_line!r} behind {path}")
                    raise

    def _is_broken_by(self, data: bytes) -> bool:
        try:
            self.check(data)
        except Exception:
            return True
        return False

    def explore(self, examples: int, number: int | None = None) -> None:
        """Check a number of inputs, the same each time or by a seed; raise `BrokenTarget` with the smallest that fails."""
        last = b""

        def check(data: bytes) -> None:
            nonlocal last
            last = data
            self.check(data)

        test: Any = given(self.strategy())(check)
        test = settings(
            max_examples=examples,
            derandomize=number is None,
            database=None,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),
        )(test if number is None else seed(number)(test))
        try:
            test()
        except Exception as error:
            raise BrokenTarget(self.name, last) from error


class BrokenTarget(AssertionError):
    """An input that breaks a target."""

    def __init__(self, target: str, data: bytes) -> None:
        self.target, self.data = target, data
        self.file = f"{hashlib.sha256(data).hexdigest()[:12]}"
        super().__init__(f"{target} is broken by {data[:2000]!r}")


def _files(places: tuple[Path, ...]) -> Iterator[Path]:
    for seed_path in places:
        yield from (
            sorted(path for path in seed_path.iterdir() if path.is_file()) if seed_path.is_dir() else (seed_path,)
        )
