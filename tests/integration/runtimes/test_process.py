"""The PTY holder of runtime process: its death, attachments, and terminal sequences."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.runtimes.process import ProcessRuntime
from agent_orchestrator.protocols import Alive, Delivered, Exit, Gone, Undeliverable
from agent_orchestrator.testing.contracts.runtime import RuntimeBench, python
from agent_orchestrator.testing.terminals import wait_until_true

pytestmark = pytest.mark.anyio

_ASK = """
import os, sys, tty
tty.setraw(0)
os.write(1, b'\\x1b[')
os.write(1, b'6n')
answer = b''
while not answer.endswith(b'R'):
    answer += os.read(0, 100)
open(sys.argv[1], 'wb').write(answer)
"""
_FLOOD = """
import os, sys
for number in range(2000):
    os.write(1, b'x' * 4000 + b'\\n')
os.write(1, b'the end')
open(sys.argv[1], 'w').close()
sys.stdin.read()
"""


async def test_a_killed_holder_loses_its_agent(process: RuntimeBench) -> None:
    handle = await process.launch(["sleep", "60"])
    os.kill(int(handle.address["holder"]), signal.SIGKILL)
    assert await process.runtime.ended(handle) == Gone(lost=True)
    assert await process.restart().probe([handle]) == [Gone(lost=True)]
    assert await process.runtime.deliver(handle, "m1", "hello") == Undeliverable("the agent has ended", ambiguous=True)
    again = await process.restart().launch(process.spec(["sleep", "60"]))
    assert await process.runtime.probe([again]) == [Gone(lost=True)]


async def test_an_agent_that_survives_its_holder_is_alive_until_it_ends(process: RuntimeBench) -> None:
    handle = await process.launch(["sh", "-c", "trap '' HUP; touch ready; exec sleep 60"])
    await wait_until_true((process.work / "ready").exists)
    os.kill(int(handle.address["holder"]), signal.SIGKILL)
    await wait_until_true(lambda: LocalHost().process(int(handle.address["holder"])) is None)
    assert await process.runtime.probe([handle]) == [Alive()]
    assert await process.runtime.deliver(handle, "m1", "hello") == Undeliverable("its terminal is gone", ambiguous=True)
    assert await process.runtime.stop(handle) == Gone(lost=True)


async def test_a_terminated_holder_waits_for_its_agents_exit(process: RuntimeBench) -> None:
    handle = await process.launch(["sh", "-c", "trap 'exit 7' HUP TERM; touch ready; while :; do sleep 0.02; done"])
    await wait_until_true((process.work / "ready").exists)
    os.kill(int(handle.address["holder"]), signal.SIGTERM)
    assert await process.runtime.ended(handle) == Gone(Exit(7))


async def test_the_holder_ends_with_its_agent_and_leaves_no_secret(process: RuntimeBench) -> None:
    private = process.home / "sessions" / "app-fix"
    handle = await process.launch(["true"], env={"PATH": os.environ["PATH"], "SOME_API_KEY": "s3cret"})
    await process.runtime.ended(handle)
    await wait_until_true(lambda: LocalHost().process(int(handle.address["holder"])) is None)
    assert not Path(handle.address["socket"]).exists()
    assert not [path for path in private.iterdir() if b"s3cret" in path.read_bytes()]


async def test_terminal_queries_are_answered_without_attachments(process: RuntimeBench) -> None:
    out = process.work / "answer"
    await process.runtime.ended(await process.launch(python(_ASK, str(out))))
    assert out.read_bytes() == b"\x1b[1;1R"


async def test_an_attachment_that_does_not_read_blocks_nothing(process: RuntimeBench) -> None:
    out = process.work / "finished"
    handle = await process.launch(["sh", "-c", 'read go; exec "$@"', "sh", *python(_FLOOD, str(out))])
    stuck = socket.socket(socket.AF_UNIX)
    stuck.connect(handle.address["socket"])
    stuck.sendall(b"A" + (4).to_bytes(4, "big") + b"\0\x50\0\x18")
    reading = await process.attach(handle)
    await wait_until_true(lambda: b"detaches" in reading.output)
    assert await process.runtime.deliver(handle, "m1", "go") == Delivered()
    await wait_until_true(out.exists)
    await wait_until_true(lambda: b"the end" in reading.output)
    # Missed output is skipped: after some old output it gets the current one.
    stuck.setblocking(False)
    received = bytearray()

    def caught_up() -> bool:
        try:
            received.extend(stuck.recv(1 << 20))
        except BlockingIOError:
            pass
        return received.endswith(b"the end")

    await wait_until_true(caught_up)
    assert len(received) < 4_000_000
    stuck.close()


async def test_detaching_restores_the_persons_terminal(process: RuntimeBench) -> None:
    handle, received = await process.launch_recorder(says=r"\x1b[?2004h\x1b[?1049h")
    terminal = await process.attach(handle)
    await wait_until_true(lambda: b"ready" in terminal.output and b"Ctrl-] detaches" in terminal.output)
    assert terminal.mode != terminal.initial_mode
    terminal.type(b"abc\x1dnot sent")
    await wait_until_true(lambda: terminal.has_ended)
    assert terminal.mode == terminal.initial_mode
    await wait_until_true(lambda: b"\x1b[?1049l" in terminal.output and b"detached]" in terminal.output)
    await wait_until_true(lambda: received.read_bytes() == b"abc")
    assert await process.runtime.probe([handle]) == [Alive()]


_CONTROL_SEQUENCES = (
    b"\x1b]52;c;ZXZpbA==\x07 \x1b]52;c;?\x1b\\ \xc2\x9d52;c;ZXZpbA==\xc2\x9c \x1b]1337;File=name=eA==:eA==\x07"
    b" \x1bP1;1|17/657669\x1b\\ \x1b_Gt=t;L2V0Yw==\x1b\\\n"
)
_VISIBLE_TEXT = "\x1b]0;title\x07\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\x1b[31mred\x1b[0m “quoted” é".encode()


async def test_an_agents_output_cannot_control_the_persons_terminal(process: RuntimeBench) -> None:
    """Sequences for the clipboard, keys, files and windows are filtered, in one piece and byte by byte."""
    script = """
import os, sys, time
sys.stdin.readline()
text = bytes.fromhex(sys.argv[1])
os.write(1, text)
for number in range(len(text)):
    os.write(1, text[number:number + 1])
    time.sleep(0.002)
os.write(1, b"\\x1b]52;c;" + b"A" * 200000 + b"\\x07the end\\x1b[0m")
time.sleep(600)
"""
    handle = await process.launch(python(script, (_CONTROL_SEQUENCES + _VISIBLE_TEXT + b"\x1b[1m").hex()))
    terminal = await process.attach(handle)
    await wait_until_true(lambda: b"detaches" in terminal.output)
    terminal.type(b"\r")
    await wait_until_true(lambda: b"the end\x1b[0m" in terminal.output)
    assert terminal.output.count(_VISIBLE_TEXT + b"\x1b[1m") == 2
    for part in (b"]52", b"\x9d52", b"1337", b"\x1bP", b"\x1b_", b"ZXZpbA", b"657669", b"AAAA"):
        assert part not in terminal.output


async def test_an_attached_person_sees_the_end(process: RuntimeBench) -> None:
    handle = await process.launch(["sh", "-c", "read line; echo last words; exit 3"])
    terminal = await process.attach(handle)
    await wait_until_true(lambda: b"detaches" in terminal.output)
    terminal.type(b"\r")
    assert await process.runtime.ended(handle) == Gone(Exit(3))
    await wait_until_true(lambda: terminal.has_ended)
    await wait_until_true(lambda: b"last words" in terminal.output and b"ended]" in terminal.output)
    assert "last words" in await process.runtime.screen(handle)


async def test_a_launch_that_fails_leaves_no_environment(
    process: RuntimeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def short(*_args: object, **_options: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(LocalHost, "spawn", short)
    with pytest.raises(OSError, match="Too many open files"):
        await process.launch(["sleep", "60"])
    assert list((process.home / "sessions" / "app-fix").glob("spec.*")) == []


async def test_a_long_home_still_has_a_socket(process: RuntimeBench) -> None:
    home = process.root / ("x" * 60) / ("y" * 60)
    runtime = ProcessRuntime({"home": str(home)}, LocalHost())
    handle = await runtime.launch(process.spec(["sleep", "60"]))
    try:
        assert await runtime.deliver(handle, "m1", "hello") == Delivered()
        assert await runtime.orphaned_terminals([]) == [handle]
    finally:
        await runtime.stop(handle, grace=0)
        await runtime.discard(handle)
        await asyncio.to_thread(Path(handle.address["socket"]).parent.rmdir)


async def test_invalid_requests_on_the_socket_do_not_affect_the_agent(process: RuntimeBench) -> None:
    handle = await process.launch(["sleep", "60"])
    for nonsense in (
        b"Q\xff\xff\xff\xff",
        b"Q\0\0\0\x0cresize\0a\0bxx",
        b"K\0\0\0\x01\x03",
        b"A\0\0\0\x01x",
        b"Z\0\0\0\0",
        b"\0",
    ):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(handle.address["socket"])
            connection.sendall(nonsense)
    await process.runtime.resize(handle, 99, 33)
    assert await process.runtime.probe([handle]) == [Alive()]
