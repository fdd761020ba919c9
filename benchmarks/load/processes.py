"""Child processes of the measuring process: each plays one part and returns its results and CPU time."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

Play = Callable[..., dict[str, Any]]


class MeasuringProcess:
    """A process that runs `play(pipe, …)`, which sends `ready`, may wait for messages, and returns its results."""

    def __init__(self, play_function: Play, *arguments: Any) -> None:
        self.name = play_function.__module__.rpartition(".")[2]
        ours, theirs = multiprocessing.Pipe()
        self._pipe = ours
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_play, args=(theirs, play_function, arguments), name=self.name)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """Return the process id."""
        assert self._process.pid is not None
        return self._process.pid

    def receive(self, timeout: float = 60.0) -> Any:
        """Return its next message; raise an exception that it sent."""
        if not self._pipe.poll(timeout):
            raise TimeoutError(f"{self.name} sent nothing for {timeout:g} s")
        message = self._pipe.recv()
        if isinstance(message, Exception):
            raise message
        return message

    def send(self, message: Any) -> None:
        """Send it a message."""
        self._pipe.send(message)

    def end(self) -> None:
        """Terminate the process."""
        if self._process.is_alive():
            self._process.terminate()
        self._process.join(10)


def _play(pipe: Connection, play_function: Play, arguments: tuple[Any, ...]) -> None:
    try:
        result = play_function(pipe, *arguments)
        pipe.send({**result, "cpu": time.process_time()})
    except Exception as error:
        pipe.send(RuntimeError(f"{play_function.__module__}: {type(error).__name__}: {error}"))
        raise
