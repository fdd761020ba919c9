"""Who is at the other end: of the Unix socket by name; of a TCP connection from this machine by his number."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import pwd
import socket
import struct
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"


def peer_user(connection: Any) -> str:
    """Who is at the other end of a Unix socket, by name; where the system does not tell, whoever may open it: its owner."""
    user = os.getuid()
    if hasattr(socket, "SO_PEERCRED"):
        with contextlib.suppress(OSError, AttributeError):
            shape = struct.Struct("3i")
            _, user, _ = shape.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, shape.size))
    return user_name(user)


@cache
def user_name(user: int) -> str:
    """A user's name, or number where there is none."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def tcp_user(client: Any, server: Any, tables: Iterable[Path] = _TABLES) -> int | None:
    """Whose the other end of a connection over the loopback is; none where that cannot be known: `client` is not there any more."""
    try:
        near, far = (ipaddress.ip_address(client[0]), int(client[1])), (ipaddress.ip_address(server[0]), int(server[1]))
    except (TypeError, ValueError, IndexError):
        return None
    if not _plain(near[0]).is_loopback:
        return None
    wanted = set(zip(_written(*near), _written(*far), strict=False))
    for table in tables:
        with contextlib.suppress(OSError, ValueError, IndexError), table.open(encoding="ascii") as lines:
            for line in lines:
                fields = line.split()
                # Whose program has closed it already is nobody's: it has no inode, and its user is not told.
                if (fields[1], fields[2]) in wanted and fields[3] == _ESTABLISHED and fields[9] != "0":
                    return int(fields[7])
    return None


def _plain(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address of IPv4 that is written as one of IPv6, as itself."""
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address


def _written(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> tuple[str, ...]:
    """An end of a connection as the kernel's tables write it; of IPv4 in both of them."""
    plain = _plain(address)
    mapped = b"\0" * 10 + b"\xff\xff" + plain.packed
    forms = (plain.packed, mapped) if isinstance(plain, ipaddress.IPv4Address) else (plain.packed,)
    return tuple(f"{''.join(_word(form[at : at + 4]) for at in range(0, len(form), 4))}:{port:04X}" for form in forms)


def _word(four: bytes) -> str:
    return f"{int.from_bytes(four, sys.byteorder):08X}"
