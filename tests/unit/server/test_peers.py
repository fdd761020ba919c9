"""The user at the other end of a TCP connection."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from agent_orchestrator.server.access.peers import tcp_user

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ROW = "   0: {} {} {} 00000000:00000000 00:00000000 00000000  {}        0 {} 1 0000000000000000 20 4 30 10 -1\n"
HERE, THERE = "0100007F:9C40", "0100007F:1F90"
MAPPED = "0000000000000000FFFF00000100007F"

needs_tables = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the kernel has no table of connections")
little = pytest.mark.skipif(sys.byteorder != "little", reason="the tables here are written the other way round")


@needs_tables
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_connection_of_this_process_belongs_to_its_user(family: socket.AddressFamily) -> None:
    address = "127.0.0.1" if family == socket.AF_INET else "::1"
    try:
        listener = socket.create_server((address, 0), family=family)
    except OSError:
        pytest.skip(f"there is no {address} here")
    with listener, socket.create_connection(listener.getsockname()[:2]) as client:
        served, peer = listener.accept()
        with served:
            assert tcp_user(peer, served.getsockname()) == os.geteuid()
            assert tcp_user(peer, ("127.0.0.1", 1)) is None, "another connection of the same port"
            client.close()
            assert tcp_user(peer, served.getsockname()) is None, "a closed connection has no user"


@little
@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ((HERE, THERE, "01", 1000, 77), 1000),
        ((HERE, THERE, "05", 0, 0), None),
        ((HERE, THERE, "01", 0, 0), None),
        ((THERE, HERE, "01", 1000, 77), None),
        ((f"{MAPPED}:9C40", f"{MAPPED}:1F90", "01", 1001, 77), 1001),
    ],
)
def test_the_kernels_table_of_connections_is_parsed(
    tmp_path: Path, row: tuple[object, ...], expected: int | None
) -> None:
    table = tmp_path / "tcp"
    table.write_text(HEAD + ROW.format(*row))
    for host in ("127.0.0.1", "::ffff:127.0.0.1"):
        assert tcp_user((host, 40_000), (host, 8_080), [table]) == expected


@pytest.mark.parametrize("client", [None, (), ("unix", 1), ("10.0.0.1", 40_000), ("127.0.0.1", None)])
def test_a_peer_of_another_machine_is_not_looked_up(tmp_path: Path, client: object) -> None:
    table = tmp_path / "tcp"
    table.write_text(HEAD + ROW.format("0100000A:9C40", THERE, "01", 1000, 77))
    assert tcp_user(client, ("127.0.0.1", 8_080), [table, tmp_path / "none"]) is None
