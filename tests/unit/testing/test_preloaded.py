"""Commands forked for tests: their exit code arrives, also after Ctrl-C, or its absence is explained."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent_orchestrator.testing import preloaded


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[preloaded._ForkServer]:
    """A parent process of this test alone."""
    started = preloaded._ForkServer()
    monkeypatch.setattr(preloaded, "_fork_server", lambda: started)
    yield started
    started._end()


def end_while_running(folder: Path, parent: preloaded._ForkServer, end: Callable[[int, int], None]) -> int:
    """Run an `ao` that waits for a file's content, end it by its parent's pid and its own, and return its exit code."""
    pipe, pid = folder / "file.yaml", parent._process.pid
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(
            preloaded.run_command, ["config", "validate", str(pipe)], dict(os.environ), folder, None
        )
        deadline = time.monotonic() + 60
        while not (opened := _open_for_writing(pipe)) and not future.done() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert opened, "the command does not read the file"
        try:
            end(pid, int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]))
            return future.result(60).returncode
        finally:
            os.close(opened)


def _open_for_writing(pipe: Path) -> int:
    """Open a named pipe that has a reader; return 0 if it has none."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return 0


def test_a_command_whose_parent_process_was_killed_says_that_its_exit_code_is_not_known(
    tmp_path: Path, parent: preloaded._ForkServer
) -> None:
    def kill(parent_pid: int, pid: int) -> None:
        os.kill(parent_pid, signal.SIGKILL)
        parent._process.wait()
        os.kill(pid, signal.SIGKILL)

    with pytest.raises(ChildProcessError, match=r"ended before `ao config validate .*` did"):
        end_while_running(tmp_path, parent, kill)


def test_the_exit_code_of_a_command_that_is_interrupted_with_its_parent_process_arrives(
    tmp_path: Path, parent: preloaded._ForkServer
) -> None:
    def interrupt(parent_pid: int, pid: int) -> None:
        for number in (parent_pid, pid):
            os.kill(number, signal.SIGINT)

    assert end_while_running(tmp_path, parent, interrupt) == 130
