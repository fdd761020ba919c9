"""An agent with a lease runs only as long as the lease is renewed, even if it tries to survive."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.cluster.node.lease import boot_time, write_deadline
from agent_orchestrator.errors import Temporary
from agent_orchestrator.protocols import Alive, Exit, Gone, Handle
from agent_orchestrator.testing.contracts.runtime import RuntimeBench, python
from agent_orchestrator.testing.terminals import wait_until_true

pytestmark = pytest.mark.anyio

_CLINGING = """
import os, signal, sys, time
for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
    try: signal.signal(number, signal.SIG_IGN)
    except OSError: pass
def tell():
    with open(sys.argv[1], 'a') as out: out.write(f'{os.getpid()}\\n')
tell()
if os.fork() == 0:
    tell()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.closerange(0, 3)
        os.execve(sys.executable, [sys.executable, '-I', '-S', '-c', '''
import os, sys, time
while True:
    if os.fork() == 0:
        os.setsid()
    else:
        os._exit(0)
    with open(sys.argv[1], 'a') as out: out.write(f'{os.getpid()}\\\\n')
    time.sleep(0.01)
''', sys.argv[1]], {})
while True:
    time.sleep(60)
"""


def write_lease(bench: RuntimeBench, seconds: float) -> Path:
    path = bench.root / "lease"
    write_deadline(path, boot_time() + seconds)
    return path


async def launch_with_short_lease(
    bench: RuntimeBench, argv: Sequence[str], ready: Callable[[], bool], extension: float = 0.0
) -> tuple[Handle, Path]:
    """Launch a program with the shortest lease in which it becomes ready, and return its handle and the lease file."""
    for generation, seconds in enumerate((0.4, 2.0, 10.0, 40.0), 1):
        path = write_lease(bench, seconds)
        with contextlib.suppress(Temporary):
            handle = await bench.launch(argv, generation=generation, lease=path)
            exit_task = asyncio.ensure_future(bench.runtime.ended(handle))
            while not exit_task.done() and not ready():
                await asyncio.sleep(0.005)
            ends_at = int(path.read_text()) / 1e9
            if extension:
                write_deadline(path, ends_at + extension)
            if not exit_task.done() and (not extension or boot_time() < ends_at):
                exit_task.cancel()
                return handle, path
            exit_task.cancel()
    raise AssertionError("this machine is too slow")


def living_pids(pids: Path) -> list[int]:
    host = LocalHost()
    return [pid for pid in map(int, pids.read_text().split()) if host.process(pid) is not None]


async def test_everything_is_killed_when_the_lease_ends(process: RuntimeBench) -> None:
    pids = process.work / "pids"
    other = await process.launch(["sleep", "60"], "app-other")
    handle, path = await launch_with_short_lease(
        process, python(_CLINGING, str(pids)), lambda: pids.exists() and len(living_pids(pids)) > 2
    )
    assert await process.runtime.ended(handle) == Gone(Exit(signal=9, reason="lease"))
    assert boot_time() * 1e9 >= int(path.read_text())
    await wait_until_true(lambda: living_pids(pids) == [])  # killed by then; on a busy machine some die a moment later
    assert "not heard of for too long" in Path(handle.address["log"]).read_text()
    await wait_until_true(lambda: LocalHost().process(int(handle.address["holder"])) is None)
    assert await process.runtime.probe([other]) == [Alive()]


async def test_an_agent_with_a_lease_ends_with_its_holder(process: RuntimeBench) -> None:
    argv = ["sh", "-c", "trap '' HUP TERM; touch ready; while :; do sleep 0.1; done"]
    handle = await process.launch(argv, lease=write_lease(process, 30))
    await wait_until_true((process.work / "ready").exists)
    os.kill(int(handle.address["holder"]), signal.SIGKILL)
    async with asyncio.timeout(60):
        assert await process.runtime.ended(handle) == Gone(lost=True), "without a holder its lease is not watched"


async def test_an_agent_with_a_renewed_lease_continues(process: RuntimeBench) -> None:
    started_file = process.work / "told"
    argv = ["sh", "-c", "touch told; read line; echo got $line; sleep 60"]
    handle, path = await launch_with_short_lease(process, argv, started_file.exists, extension=60)
    first = int(path.read_text()) / 1e9 - 60
    await wait_until_true(lambda: boot_time() > first + 0.1)
    assert await process.runtime.probe([handle]) == [Alive()]
    await process.runtime.deliver(handle, "m1", "hello")
    await wait_until_true(lambda: "got hello" in Path(handle.address["log"]).read_text())
    assert (await process.runtime.stop(handle)).exit.reason == ""


@pytest.mark.parametrize("content", ["", "later\n", None], ids=["empty", "no number", "not there"])
async def test_an_agent_does_not_start_without_a_valid_lease(process: RuntimeBench, content: str | None) -> None:
    path = process.root / "lease"
    if content is not None:
        path.write_text(content)
    with pytest.raises(Temporary, match="its lease is over"):
        await process.launch(["touch", "ran"], lease=path)
    assert not (process.work / "ran").exists()


async def test_the_exit_of_an_agent_with_a_lease_is_reported(process: RuntimeBench) -> None:
    handle = await process.launch(["sh", "-c", "(sleep 0.2 &) ; exit 3"], lease=write_lease(process, 30))
    assert await process.runtime.ended(handle) == Gone(Exit(3))
