"""The process runtime as on Windows, against the contract of runtimes: over loopback with a token and a stand-in for pywinpty."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.errors import Temporary
from agent_orchestrator.plugins.runtimes.holder_client import LoopbackHolderClient, read_address
from agent_orchestrator.plugins.runtimes.process import ProcessRuntime
from agent_orchestrator.protocols import Alive, Runtime
from agent_orchestrator.testing.contracts.runtime import RuntimeBench, RuntimeContract

CONSOLES = Path(__file__).parent / "consoles"


class StandIn(LoopbackHolderClient):
    def environment(self) -> Mapping[str, str]:
        return {**super().environment(), "PYTHONPATH": str(CONSOLES)}


class TestConsoles(RuntimeContract):
    def new_runtime(self, home: Path) -> Runtime:
        return ProcessRuntime({"home": str(home)}, LocalHost(), StandIn())

    async def test_standard_input_can_be_a_file(self, bench: RuntimeBench) -> None:
        """Consoles of Windows accept no file as standard input, which is reported."""
        task_file = bench.work / "given"
        task_file.write_text("the task\n")
        with pytest.raises(Temporary, match="takes no standard input from a file"):
            await bench.launch(["cat"], stdin=task_file)

    @pytest.mark.parametrize(
        "first", [b"Q\0\0\0\6screen", b"T\0\0\0\4nope", b"A\0\0\0\4\0\x50\0\x18", b"K\0\0\0\5hello", b"T\0\0\0\0"]
    )
    async def test_a_connection_without_the_token_is_closed(self, bench: RuntimeBench, first: bytes) -> None:
        handle = await bench.launch(["sleep", "60"])
        port, token = read_address(handle.address["socket"])
        assert len(token) == 32 and Path(handle.address["socket"]).stat().st_mode & 0o077 == 0
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(first)
            assert await asyncio.wait_for(reader.read(), 60) == b""
        finally:
            writer.close()
        assert await bench.runtime.probe([handle]) == [Alive()]
        assert (await bench.runtime.screen(handle)).strip() == ""
