"""How holders are started and reached: by a Unix socket, or on Windows over loopback with a token (`pty_holder/conpty.py`)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

_HERE = Path(__file__).parent
_START = "import sys; sys.path.append(sys.argv[1]); from pty_holder.{0} import main; main(sys.argv[2])"

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Holders(Protocol):
    """One way."""

    def command(self, told: Path) -> Sequence[str]:
        """Starts a holder that is told so."""
        ...

    def environment(self) -> Mapping[str, str]:
        """What its own process needs; the agent's is in what it is told."""
        ...

    async def connect(self, address: str) -> Connection:
        """A connection to one; `OSError` where there is none."""
        ...


class Unix:
    """A PTY of the system's."""

    def command(self, told: Path) -> Sequence[str]:
        """Without all that is not needed: it starts thrice as fast."""
        return (sys.executable, "-I", "-S", "-c", _START.format("holder"), str(_HERE), str(told))

    def environment(self) -> Mapping[str, str]:
        """Nothing of ours."""
        return {"LANG": "C.UTF-8"}

    async def connect(self, address: str) -> Connection:
        """Its owner alone may open the socket."""
        return await asyncio.open_unix_connection(address, limit=1 << 20)


class Loopback:
    """A pseudo console of Windows."""

    def command(self, told: Path) -> Sequence[str]:
        """With the installed packages: pywinpty is one of them."""
        return (sys.executable, "-P", "-c", _START.format("conpty"), str(_HERE), str(told))

    def environment(self) -> Mapping[str, str]:
        """Windows needs its own names to start anything at all."""
        return dict(os.environ)

    async def connect(self, address: str) -> Connection:
        """Only the owner can read the token."""
        port, token = read_address(address)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        writer.write(b"T" + len(token).to_bytes(4, "big") + token)
        return reader, writer


def read_address(path: str) -> tuple[int, bytes]:
    """Where a holder listens, and what it wants to hear."""
    try:
        port, token = Path(path).read_text().split()
        return int(port), token.encode()
    except ValueError:
        raise OSError(f"{path} names no holder") from None


def here() -> Holders:
    """The way of this system."""
    return Loopback() if sys.platform == "win32" else Unix()
