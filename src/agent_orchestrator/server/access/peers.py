"""The user at the other end of a connection: by name for the Unix socket, by number for TCP from this machine."""

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
    """Return the name of the user at the other end of a Unix socket; if the system does not report it, the socket's owner."""
    user = os.getuid()
    if hasattr(socket, "SO_PEERCRED"):
        with contextlib.suppress(OSError, AttributeError):
            shape = struct.Struct("3i")
            _, user, _ = shape.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, shape.size))
    return user_name(user)


@cache
def user_name(user: int) -> str:
    """Return a user's name, or number if there is none."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def tcp_user(client: Any, server: Any, tables: Iterable[Path] = _TABLES) -> int | None:
    """Return the user id of the client of a loopback connection, or None if unknown: the client may have closed it."""
    try:
        client_end, server_end = (
            (ipaddress.ip_address(client[0]), int(client[1])),
            (ipaddress.ip_address(server[0]), int(server[1])),
        )
    except (TypeError, ValueError, IndexError):
        return None
    if not _unmapped(client_end[0]).is_loopback:
        return None
    ends = set(zip(_kernel_forms(*client_end), _kernel_forms(*server_end), strict=False))
    for table in tables:
        with contextlib.suppress(OSError, ValueError, IndexError), table.open(encoding="ascii") as lines:
            for line in lines:
                fields = line.split()
                # A socket that its program has closed has no inode, and its user is not reported.
                if (fields[1], fields[2]) in ends and fields[3] == _ESTABLISHED and fields[9] != "0":
                    return int(fields[7])
    return None


def _unmapped(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return an IPv4 address that is written as IPv6 as IPv4; others unchanged."""
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address


def _kernel_forms(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> tuple[str, ...]:
    """Return the ways the kernel's tables write one end of a connection; IPv4 may be in both tables."""
    unmapped = _unmapped(address)
    mapped = b"\0" * 10 + b"\xff\xff" + unmapped.packed
    forms = (unmapped.packed, mapped) if isinstance(unmapped, ipaddress.IPv4Address) else (unmapped.packed,)
    return tuple(
        f"{''.join(_hex_word(form[start : start + 4]) for start in range(0, len(form), 4))}:{port:04X}"
        for form in forms
    )


def _hex_word(four_bytes: bytes) -> str:
    """Return four bytes as the kernel prints them: a hexadecimal number in the machine's byte order."""
    return f"{int.from_bytes(four_bytes, sys.byteorder):08X}"
