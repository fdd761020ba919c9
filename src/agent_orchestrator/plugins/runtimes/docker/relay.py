"""Runs in a container: forwards ports of its loopback to sockets. Returns when it listens, and continues in the background.

python3 -I -S relay.py PORT:SOCKET...
"""

from __future__ import annotations

import os
import selectors
import socket
import sys

selector = selectors.DefaultSelector()


def pump(source: socket.socket, target: socket.socket) -> None:
    """Forward the data that is available; at the end of one direction, close that direction."""
    try:
        data = source.recv(65536)
        if data:
            target.sendall(data)
            return
        selector.unregister(source)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            try:
                selector.unregister(end)
            except (KeyError, ValueError):
                pass
            end.close()


def accept(listener: socket.socket, path: str) -> None:
    """Accept one connection and connect it to the socket."""
    near, _ = listener.accept()
    far = socket.socket(socket.AF_UNIX)
    try:
        far.connect(path)
    except OSError:
        near.close()
        far.close()
        return
    selector.register(near, selectors.EVENT_READ, (near, far))
    selector.register(far, selectors.EVENT_READ, (far, near))


def main() -> None:
    """Listen, let the caller continue, and forward data until the container ends."""
    for pair in sys.argv[1:]:
        port, _, path = pair.partition(":")
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", int(port)))
        listener.listen(64)
        selector.register(listener, selectors.EVENT_READ, (listener, path))
    if os.fork():
        os._exit(0)
    os.setsid()
    while True:
        for key, _ in selector.select():
            first, second = key.data
            if isinstance(second, str):
                accept(first, second)
            else:
                pump(first, second)


if __name__ == "__main__":
    main()
