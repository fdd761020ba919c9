"""Host names under which the server may be addressed."""

from __future__ import annotations

import pytest

from agent_orchestrator.errors import Denied
from agent_orchestrator.server.access.auth import HostNames


def is_allowed(names: HostNames, host: str, **headers: str) -> bool:
    encoded_headers = {name.encode().lower().replace(b"_", b"-"): value.encode() for name, value in headers.items()}
    try:
        names.check({b"host": host.encode(), **encoded_headers}, api=True)
    except Denied:
        return False
    return True


def test_a_server_on_loopback_has_loopbacks_names_only() -> None:
    names = HostNames(["127.0.0.1"])
    assert [is_allowed(names, host) for host in ("localhost:1", "127.0.0.1", "[::1]", "box", "10.0.0.5", "")] == [
        True
    ] * 3 + [False] * 3


def test_a_server_on_a_named_host_has_that_name_too() -> None:
    names = HostNames(["Box.Local"])
    assert [is_allowed(names, host) for host in ("box.local:3000", "BOX.LOCAL", "other.local")] == [True, True, False]


@pytest.mark.parametrize("wildcard", ["0.0.0.0", "::"])
def test_a_server_on_every_address_has_every_address_but_not_every_name(wildcard: str) -> None:
    names = HostNames([wildcard])
    assert [is_allowed(names, host) for host in ("10.0.0.5:3000", "[fe80::1]", "evil.example")] == [True, True, False]


def test_an_origin_is_ours_only_with_the_same_name_and_port() -> None:
    names = HostNames()
    assert is_allowed(names, "localhost:3000", origin="http://localhost:3000")
    assert not is_allowed(names, "localhost:3000", origin="http://localhost:3001")
    assert not is_allowed(names, "localhost:3000", origin="http://127.0.0.1:3000")
    assert not is_allowed(names, "localhost:3000", origin="http://localhost:3000@evil.example")
