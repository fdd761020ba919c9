"""Who is at the other end of the Unix socket."""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import struct
from functools import cache
from typing import Any


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
