"""What is fuzzed: a check that any bytes must pass, and the folder of bytes that are kept for it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from tests.fuzz.mutating import each_odd, near

CORPORA = Path(__file__).parent / "corpora"


@dataclass(frozen=True)
class Target:
    """One thing that takes bytes from outside."""

    name: str
    check: Callable[[bytes], object]
    """Raises where the bytes did what no bytes may do."""
    shape: str = "lines"
    words: tuple[bytes, ...] = ()
    examples: int = 15
    """Mutations that are tried along with the other tests."""
    seeds: tuple[Path, ...] = ()
    """Files and folders elsewhere in the tests that are good beginnings, too."""
    inputs: SearchStrategy[bytes] | None = None
    """What to try instead of what is near to the seeds."""

    def kept(self) -> list[Path]:
        """The files that are replayed: seeds, and whatever once broke something."""
        return sorted(path for path in (CORPORA / self.name).iterdir() if path.is_file())

    def strategy(self) -> SearchStrategy[bytes]:
        """Inputs to try."""
        if self.inputs is not None:
            return self.inputs
        files = [*self.kept(), *_files(self.seeds)]
        return near([path.read_bytes() for path in files], self.shape, self.words)

    def replay(self) -> None:
        """Check everything that is kept."""
        for path in self.kept():
            try:
                self.check(path.read_bytes())
            except Exception as error:
                error.add_note(f"{self.name} does not stand {path}")
                raise

    def replace_each(self) -> None:
        """Check everything that is kept with, behind it, each line as often as it has values, one of them an odd one."""
        for path in self.kept():
            for lines in each_odd(path.read_bytes()):
                data = b"\n".join([path.read_bytes().rstrip(b"\n"), *lines, b""])
                try:
                    self.check(data)
                except Exception as error:
                    alone = next((line for line in lines if self._breaks(path.read_bytes() + line + b"\n")), data)
                    error.add_note(f"{self.name} does not stand {alone!r} behind {path}")
                    raise

    def _breaks(self, data: bytes) -> bool:
        try:
            self.check(data)
        except Exception:
            return True
        return False

    def explore(self, examples: int, number: int | None = None) -> None:
        """Check that many inputs: the same ones each time, or those of a seed. Raises `Broken` with the smallest that fails."""
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
            raise Broken(self.name, last) from error


class Broken(AssertionError):
    """An input that did what no input may do."""

    def __init__(self, target: str, data: bytes) -> None:
        self.target, self.data = target, data
        self.file = f"{hashlib.sha256(data).hexdigest()[:12]}"
        super().__init__(f"{target} does not stand {data[:2000]!r}")


def _files(places: tuple[Path, ...]) -> Iterator[Path]:
    for place in places:
        yield from sorted(path for path in place.iterdir() if path.is_file()) if place.is_dir() else (place,)
