"""Commands forked for tests: their exit code arrives, also after Ctrl-C, or its absence is explained."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent_orchestrator.testing import preloaded

Running = Future[subprocess.CompletedProcess[str]]


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[preloaded._Parent]:
    """A parent process of this test alone."""
    started = preloaded._Parent()
    monkeypatch.setattr(preloaded, "_parent", lambda: started)
    yield started
    started._end()


@contextmanager
def running_command(folder: Path) -> Iterator[Running]:
    """Yield the future of an `ao` that runs until the block ends."""
    pipe = folder / "base.txt"
    os.mkfifo(pipe)
    (folder / "ours.txt").touch()
    argv = ["merge-file", str(pipe), "ours.txt", "ours.txt"]
    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(preloaded.run_command, argv, dict(os.environ), folder, None)
        with pipe.open("wb"):  # once it is opened at both ends
            yield future


def test_a_command_whose_parent_process_was_killed_says_that_its_exit_code_is_not_known(
    tmp_path: Path, parent: preloaded._Parent
) -> None:
    with running_command(tmp_path) as future:
        parent._process.kill()
        parent._process.wait()
    with pytest.raises(ChildProcessError, match=r"ended before `ao merge-file .*` did"):
        future.result()


def test_the_exit_code_of_a_command_that_is_interrupted_with_its_parent_process_arrives(
    tmp_path: Path, parent: preloaded._Parent
) -> None:
    with running_command(tmp_path) as future:
        os.kill(parent._process.pid, signal.SIGINT)
        children = Path(f"/proc/{parent._process.pid}/task/{parent._process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGINT)
        assert future.result().returncode == 130
