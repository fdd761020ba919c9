"""Starts holders and connects to them: by a Unix socket, or on Windows over loopback with a token (`pty_holder/conpty.py`)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

_HERE = Path(__file__).parent
_START = "import sys; sys.path.append(sys.argv[1]); from pty_holder.{0} import main; main(sys.argv[2])"

HolderStreams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class HolderClient(Protocol):
    """A way to start holders and connect to them."""

    def command(self, spec_file: Path) -> Sequence[str]:
        """Return the command that starts a holder with this specification file."""
        ...

    def environment(self) -> Mapping[str, str]:
        """Return the environment of the holder's own process; the agent's is in the specification."""
        ...

    async def connect(self, address: str) -> HolderStreams:
        """Connect to the holder at this address; raises `OSError` if there is none."""
        ...


class UnixHolderClient:
    """Holders of the operating system's PTYs, reached by Unix sockets."""

    def command(self, spec_file: Path) -> Sequence[str]:
        """Return the command without unneeded start-up work: it starts three times as fast."""
        return (sys.executable, "-I", "-S", "-c", _START.format("holder"), str(_HERE), str(spec_file))

    def environment(self) -> Mapping[str, str]:
        """Return a minimal environment, without the daemon's variables."""
        return {"LANG": "C.UTF-8"}

    async def connect(self, address: str) -> HolderStreams:
        """Connect to the socket, which only its owner may open."""
        return await asyncio.open_unix_connection(address, limit=1 << 20)


class LoopbackHolderClient:
    """Holders of Windows' pseudo consoles, reached over loopback."""

    def command(self, spec_file: Path) -> Sequence[str]:
        """Return the command with the installed packages available: pywinpty is one of them."""
        return (sys.executable, "-P", "-c", _START.format("conpty"), str(_HERE), str(spec_file))

    def environment(self) -> Mapping[str, str]:
        """Return the daemon's environment: Windows needs some of its variables to start any program."""
        return dict(os.environ)

    async def connect(self, address: str) -> HolderStreams:
        """Connect to the port and send the token, which only the owner can read."""
        port, token = read_address(address)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        writer.write(b"T" + len(token).to_bytes(4, "big") + token)
        return reader, writer


def read_address(path: str) -> tuple[int, bytes]:
    """Return the port and the token from a holder's address file. Raises `OSError` if it contains none."""
    try:
        port, token = Path(path).read_text().split()
        return int(port), token.encode()
    except ValueError:
        raise OSError(f"{path} names no holder") from None


def system_holders() -> HolderClient:
    """Return the way that this operating system uses."""
    return LoopbackHolderClient() if sys.platform == "win32" else UnixHolderClient()
