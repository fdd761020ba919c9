"""The local host: running, streaming and watching real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.errors import Missing, Temporary, UsageError
from agent_orchestrator.protocols.host import ProcessId
from agent_orchestrator.testing.terminals import wait_until_true

pytestmark = pytest.mark.anyio


@pytest.fixture
def host() -> LocalHost:
    return LocalHost()


def _has_ended(pid: int) -> bool:
    return LocalHost().process(pid) is None


async def test_run_returns_code_output_and_errors(host: LocalHost, tmp_path: Path) -> None:
    script = 'cat; echo "$A $PWD"; echo one >&2; echo two >&2; exit 3'
    completed = await host.run(
        ["sh", "-c", script], cwd=tmp_path, env={"A": "x", "PATH": os.environ["PATH"]}, input=b"in "
    )
    assert (completed.code, completed.text, completed.error) == (3, f"in x {tmp_path}\n", "two")


async def test_run_starts_no_thread(host: LocalHost) -> None:
    threads = threading.active_count()
    running = asyncio.create_task(host.run(["sh", "-c", "sleep 0.1"]))
    await wait_until_true(lambda: running.done() or threading.active_count() > threads)
    assert threading.active_count() == threads


def test_one_host_serves_one_loop_after_another(host: LocalHost) -> None:
    assert [asyncio.run(host.run(["true"])).code for _ in range(2)] == [0, 0]


async def test_run_takes_large_input_and_output(host: LocalHost) -> None:
    data = os.urandom(3_000_000)
    assert (await host.run(["cat"], input=data)).out == data


async def test_a_program_that_ignores_its_input_is_no_error(host: LocalHost) -> None:
    assert (await host.run(["true"], input=b"x" * 1_000_000)).code == 0


@pytest.mark.parametrize("argv", [["no-such-program"], ["/no/such/program"], ["/etc/passwd"]])
async def test_a_program_that_cannot_be_run_is_missing(host: LocalHost, argv: list[str], tmp_path: Path) -> None:
    with pytest.raises(Missing):
        await host.run(argv)
    with pytest.raises(Missing):
        await host.spawn(argv, cwd=tmp_path)


async def test_a_missing_folder_is_named(host: LocalHost, tmp_path: Path) -> None:
    with pytest.raises(Missing, match="nowhere"):
        await host.run(["true"], cwd=tmp_path / "nowhere")


@pytest.mark.parametrize("argument", ["a\0b", "x" * 3_000_000])
async def test_impossible_arguments_are_the_callers_fault(host: LocalHost, argument: str) -> None:
    with pytest.raises(UsageError):
        await host.run(["true", argument])


@pytest.mark.parametrize("last", ["wait", "exit 0"])
async def test_time_out_ends_grandchildren_too(host: LocalHost, tmp_path: Path, last: str) -> None:
    pids = tmp_path / "pids"
    script = f"trap '' TERM; (trap '' TERM; sleep 60) & echo $! $$ >{pids}; {last}"
    for seconds in (0.3, 3.0, 30.0):  # as short as can be that it comes so far in
        with pytest.raises(Temporary):
            await host.run(["sh", "-c", script], timeout=seconds)
        if pids.exists() and pids.read_text():
            break
    for pid in map(int, pids.read_text().split()):
        await wait_until_true(lambda: _has_ended(pid))  # noqa: B023 - awaited here


async def test_cancelling_a_run_ends_its_process(host: LocalHost, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    running = asyncio.create_task(host.run(["sh", "-c", f"echo $$ >{pid}; exec sleep 60"]))
    await wait_until_true(lambda: pid.exists() and pid.read_text())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert _has_ended(int(pid.read_text()))


@pytest.mark.parametrize("fails", [False, True])
async def test_a_program_whose_output_is_not_read_ends_with_the_block(
    host: LocalHost, tmp_path: Path, fails: bool
) -> None:
    """Reading is paused because more output has arrived than was consumed."""
    async with asyncio.timeout(60):
        try:
            async with host.pipe(["yes"], log=tmp_path / "err") as process:
                assert process.stdout is not None
                await wait_until_true(lambda: process.stdout._paused)  # type: ignore[union-attr]
                if fails:
                    raise Temporary("enough")
        except Temporary:
            assert fails
    assert _has_ended(process.pid)


async def test_stream_reports_each_line_while_the_program_runs(host: LocalHost, tmp_path: Path) -> None:
    lines: list[str] = []
    go = tmp_path / "go"
    script = f"echo one; until [ -e {go} ]; do sleep 0.01; done; echo two >&2; printf three; exit 4"
    running = asyncio.create_task(host.stream(["sh", "-c", script], lines.append))
    await wait_until_true(lambda: lines == ["one"])
    go.touch()
    assert await running == 4
    assert lines == ["one", "two", "three"]


async def test_stream_passes_on_an_endless_line_in_pieces(host: LocalHost) -> None:
    lines: list[str] = []
    assert await host.stream(["sh", "-c", "head -c 5000000 /dev/zero | tr '\\0' x"], lines.append) == 0
    assert sum(map(len, lines)) == 5_000_000


async def test_stream_ends_at_its_time_limit(host: LocalHost) -> None:
    with pytest.raises(Temporary, match="time limit"):
        await host.stream(["sleep", "60"], lambda _: None, timeout=0.1)


async def test_a_spawned_process_has_its_own_session_and_leaves_no_zombie(host: LocalHost, tmp_path: Path) -> None:
    threads = threading.active_count()
    log = tmp_path / "log"
    pid = await host.spawn(["sh", "-c", "echo said; exec sleep 60"], cwd=tmp_path, log=log)
    assert os.getsid(pid) == pid
    await wait_until_true(lambda: log.read_text() == "said\n")
    assert threading.active_count() == threads
    os.kill(pid, signal.SIGKILL)
    await wait_until_true(lambda: not Path(f"/proc/{pid}").exists())


def test_closing_the_loop_over_a_spawned_program_is_silent(tmp_path: Path) -> None:
    pid = asyncio.run(LocalHost().spawn(["sleep", "60"], cwd=tmp_path))
    assert LocalHost().process(pid) is not None
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


async def test_the_end_of_a_process_is_reported_at_once(host: LocalHost, tmp_path: Path) -> None:
    delays: list[float] = []
    while not delays or (delays[-1] >= 0.5 and len(delays) < 7):  # a busy machine may take longer, but not each time
        pid = await host.spawn(["sleep", "60"], cwd=tmp_path)
        process = host.process(pid)
        assert process is not None
        waiting = [asyncio.create_task(host.exited(process)) for _ in range(3)]
        completed, _ = await asyncio.wait(waiting, timeout=0.05)
        assert not completed
        began = time.monotonic()
        assert host.kill(process, signal.SIGKILL)
        await asyncio.gather(*waiting)
        delays.append(time.monotonic() - began)
        await host.exited(process)
        assert not host.kill(process, signal.SIGKILL)
    assert delays[-1] < 0.5, delays


async def test_a_cancelled_wait_is_cancelled(host: LocalHost) -> None:
    own = host.process(os.getpid())
    assert own is not None
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await host.exited(own)


async def test_a_reused_pid_is_another_process(host: LocalHost) -> None:
    stranger = ProcessId(os.getpid(), "1")
    await host.exited(stranger)
    assert not host.kill(stranger, signal.SIGKILL)
    assert host.family(stranger) == []


async def test_a_group_can_be_signalled(host: LocalHost, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pid = await host.spawn(["sh", "-c", f"sleep 60 & echo $! >{pids}; wait"], cwd=tmp_path)
    await wait_until_true(lambda: pids.exists() and pids.read_text())
    process = host.process(pid)
    assert process is not None
    host.kill(process, signal.SIGKILL, group=True)
    await wait_until_true(lambda: _has_ended(pid) and _has_ended(int(pids.read_text())))


async def test_a_family_is_the_session_and_all_descendants(host: LocalHost, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    apart = f"import os, time; os.setsid(); open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n'); time.sleep(60)"
    # One that its parent has left behind, in the same session; one in a session of its own.
    script = f'(sleep 60 & echo $! >>{pids}); "$@" & wait'
    pid = await host.spawn(["sh", "-c", script, "sh", sys.executable, "-I", "-S", "-c", apart], cwd=tmp_path)
    await wait_until_true(lambda: pids.exists() and pids.read_text().count("\n") == 2)
    leader = host.process(pid)
    assert leader is not None
    family = host.family(leader)
    try:
        assert {member.pid for member in family} == {pid, *map(int, pids.read_text().split())}
    finally:
        for member in family:
            host.kill(member, signal.SIGKILL)


async def test_a_caller_within_a_family_and_its_children_do_not_belong_to_it(host: LocalHost) -> None:
    ask = (
        "import os, subprocess, sys; from agent_orchestrator.base.host import LocalHost; "
        "own = subprocess.Popen(['sleep', '60'], start_new_session=True); host = LocalHost(); "
        "family = {one.pid for one in host.family(host.process(os.getppid()))}; own.kill(); "
        "print(os.getppid() in family, os.getpid() in family, own.pid in family)"
    )
    script = '"$@" & wait'
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    completed = await host.run(
        ["sh", "-c", script, "sh", sys.executable, "-c", f"import os; os.setsid(); {ask}"], env=env
    )
    assert completed.text.split() == ["True", "False", "False"], completed.error


async def test_users_of_a_folder_have_it_as_cwd_or_a_file_of_it_open(host: LocalHost, tmp_path: Path) -> None:
    inside, beside = tmp_path / "inside", tmp_path / "inside-not"
    for folder in (inside, beside):
        folder.mkdir()
    (inside / "file").touch()
    in_it = await host.spawn(["sleep", "60"], cwd=inside)
    has_open = await host.spawn(["sh", "-c", f"exec 3<{inside}/file; exec sleep 60"], cwd=tmp_path)
    neither = await host.spawn(["sleep", "60"], cwd=beside)
    try:
        await wait_until_true(lambda: {pid for pid, _ in host.users_of(inside)} == {in_it, has_open})
        await wait_until_true(lambda: ("sleep") in dict(host.users_of(inside)).values())
    finally:
        for pid in (in_it, has_open, neither):
            os.kill(pid, signal.SIGKILL)
    await wait_until_true(lambda: host.users_of(inside) == [])


def test_another_boot_can_be_simulated(host: LocalHost, monkeypatch: pytest.MonkeyPatch) -> None:
    assert host.boot_id() == LocalHost().boot_id() != ""
    monkeypatch.setenv("AO_TEST_BOOT_ID", "another")
    assert LocalHost().boot_id() == "another"


@pytest.mark.parametrize("turns", range(8))
def test_a_loop_ends_while_programs_are_being_started(turns: int) -> None:
    """The loop ends while a program is at any stage of its start."""
    script = f"""
import asyncio
from agent_orchestrator.base.host import LocalHost, run_and_end_tasks

async def main():
    asyncio.create_task(LocalHost().run(["true"]))
    for _ in range({turns}):
        await asyncio.sleep(0)

asyncio.run(run_and_end_tasks(main()))
"""
    _assert_exits(script)


@pytest.mark.parametrize("turns", range(8))
def test_a_loop_ends_while_a_cancelled_task_starts_a_program(turns: int) -> None:
    """A cancelled task starts a program in its cleanup, in a task that is not awaited."""
    script = f"""
import asyncio
from agent_orchestrator.base.host import LocalHost, run_and_end_tasks

tidying = set()

async def work():
    try:
        await asyncio.sleep(60)
    finally:
        tidying.add(asyncio.create_task(LocalHost().run(["true"])))
        for _ in range({turns}):
            await asyncio.sleep(0)

async def main():
    tidying.add(asyncio.create_task(work()))
    await asyncio.sleep(0)

asyncio.run(run_and_end_tasks(main()))
"""
    _assert_exits(script)


def _assert_exits(script: str) -> None:
    completed = subprocess.run([sys.executable, "-c", script], timeout=55, check=False, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
