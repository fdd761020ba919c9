"""Processes beside the one that measures: each does one thing, says what came of it, and what CPU time that took."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

Play = Callable[..., dict[str, Any]]


class Child:
    """A process that plays a part: `part(pipe, …)` sends `ready`, waits for word where it likes, and returns what it has to tell."""

    def __init__(self, part: Play, *given: Any) -> None:
        self.name = part.__module__.rpartition(".")[2]
        ours, theirs = multiprocessing.Pipe()
        self._pipe = ours
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_play, args=(theirs, part, given), name=self.name)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process.pid is not None
        return self._process.pid

    def hear(self, timeout: float = 60.0) -> Any:
        """What it says next."""
        if not self._pipe.poll(timeout):
            raise TimeoutError(f"{self.name} says nothing for {timeout:g} s")
        said = self._pipe.recv()
        if isinstance(said, Exception):
            raise said
        return said

    def tell(self, word: Any) -> None:
        """Tell it something."""
        self._pipe.send(word)

    def end(self) -> None:
        """It is not needed any more."""
        if self._process.is_alive():
            self._process.terminate()
        self._process.join(10)


def _play(pipe: Connection, part: Play, given: tuple[Any, ...]) -> None:
    try:
        told = part(pipe, *given)
        pipe.send({**told, "cpu": time.process_time()})
    except Exception as error:
        pipe.send(RuntimeError(f"{part.__module__}: {type(error).__name__}: {error}"))
        raise
