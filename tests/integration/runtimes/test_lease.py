"""An agent with a lease lives as long as somebody renews it, and not a moment longer, whatever it does to stay."""

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
from agent_orchestrator.testing.contracts.runtime import Bench, python
from agent_orchestrator.testing.terminals import eventually

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


def lease(bench: Bench, seconds: float) -> Path:
    path = bench.root / "lease"
    write_deadline(path, boot_time() + seconds)
    return path


async def with_short_lease(
    bench: Bench, argv: Sequence[str], ready: Callable[[], bool], put_off: float = 0.0
) -> tuple[Handle, Path]:
    """Launch it with a lease as short as can be that it becomes ready in, and is put off by so much, on however busy a machine."""
    for generation, seconds in enumerate((0.4, 2.0, 10.0, 40.0), 1):
        path = lease(bench, seconds)
        with contextlib.suppress(Temporary):
            handle = await bench.launch(argv, generation=generation, lease=path)
            ended = asyncio.ensure_future(bench.runtime.ended(handle))
            while not ended.done() and not ready():
                await asyncio.sleep(0.005)
            over = int(path.read_text()) / 1e9
            if put_off:
                write_deadline(path, over + put_off)
            if not ended.done() and (not put_off or boot_time() < over):
                ended.cancel()
                return handle, path
            ended.cancel()
    raise AssertionError("this machine is too slow")


def living(pids: Path) -> list[int]:
    host = LocalHost()
    return [pid for pid in map(int, pids.read_text().split()) if host.process(pid) is not None]


async def test_everything_goes_when_it_is_over(process: Bench) -> None:
    pids = process.work / "pids"
    other = await process.launch(["sleep", "60"], "app-other")
    handle, path = await with_short_lease(
        process, python(_CLINGING, str(pids)), lambda: pids.exists() and len(living(pids)) > 2
    )
    assert await process.runtime.ended(handle) == Gone(Exit(signal=9, reason="lease"))
    assert boot_time() * 1e9 >= int(path.read_text())
    await eventually(lambda: living(pids) == [])  # killed by then; on a busy machine some die a moment later
    assert "not heard of for too long" in Path(handle.address["log"]).read_text()
    await eventually(lambda: LocalHost().process(int(handle.address["holder"])) is None)
    assert await process.runtime.probe([other]) == [Alive()]


async def test_it_goes_with_its_holder(process: Bench) -> None:
    argv = ["sh", "-c", "trap '' HUP TERM; touch ready; while :; do sleep 0.1; done"]
    handle = await process.launch(argv, lease=lease(process, 30))
    await eventually((process.work / "ready").exists)
    os.kill(int(handle.address["holder"]), signal.SIGKILL)
    async with asyncio.timeout(60):
        assert await process.runtime.ended(handle) == Gone(lost=True), "nobody would watch its lease any more"


async def test_a_renewed_one_goes_on(process: Bench) -> None:
    told = process.work / "told"
    argv = ["sh", "-c", "touch told; read line; echo got $line; sleep 60"]
    handle, path = await with_short_lease(process, argv, told.exists, put_off=60)
    first = int(path.read_text()) / 1e9 - 60
    await eventually(lambda: boot_time() > first + 0.1)
    assert await process.runtime.probe([handle]) == [Alive()]
    await process.runtime.deliver(handle, "m1", "hello")
    await eventually(lambda: "got hello" in Path(handle.address["log"]).read_text())
    assert (await process.runtime.stop(handle)).exit.reason == ""


@pytest.mark.parametrize("content", ["", "later\n", None], ids=["empty", "no number", "not there"])
async def test_without_a_lease_it_does_not_start(process: Bench, content: str | None) -> None:
    path = process.root / "lease"
    if content is not None:
        path.write_text(content)
    with pytest.raises(Temporary, match="its lease is over"):
        await process.launch(["touch", "ran"], lease=path)
    assert not (process.work / "ran").exists()


async def test_its_own_end_is_told_as_ever(process: Bench) -> None:
    handle = await process.launch(["sh", "-c", "(sleep 0.2 &) ; exit 3"], lease=lease(process, 30))
    assert await process.runtime.ended(handle) == Gone(Exit(3))
