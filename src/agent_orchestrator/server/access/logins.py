"""How a browser signs in: by a link that is good once and soon stale, or by a token. Who fails too often must wait.

Links live in memory, as hashes: a daemon that ends takes them with it.
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from agent_orchestrator.base.rate_limit import Recent
from agent_orchestrator.config.tokens import Identity, Tokens
from agent_orchestrator.errors import Denied, UsageError

LINK_SECONDS = 120
FAILURES = 10
"""Sign-ins that may fail in a minute from one address; on this machine, from one user at it."""
WINDOW = 60.0
_AGAIN = "run `ao dashboard` for a new link, or `ao token new NAME` for a token"


class Unknown(Denied):
    """This link or token opens nothing."""

    category = "unauthorized"
    http_status = 401


class TooMany(Denied):
    """Too much from one address; `wait` says for how many seconds it is refused."""

    category = "too-many"
    http_status = 429

    def __init__(self, wait: int) -> None:
        super().__init__("too many sign-ins failed from this address", f"try again in {wait} s")
        self.wait = wait


@dataclass(frozen=True, slots=True)
class _Link:
    identity: Identity
    until: float


class Logins:
    """Signs browsers in and out."""

    def __init__(self, tokens: Tokens, clock: Callable[[], float] = time.time) -> None:
        self._tokens, self._clock = tokens, clock
        self._links: dict[str, _Link] = {}
        self._failures = Recent(FAILURES, WINDOW, clock)

    def link(self, maker: Identity, role: Literal["viewer", "operator", "admin"]) -> tuple[str, float]:
        """A code that signs in one browser with this role, and when it is stale."""
        now = self._clock()
        self._links = {key: link for key, link in self._links.items() if link.until > now}
        code = secrets.token_urlsafe(32)
        self._links[_hash(code)] = _Link(Identity("login", role, by=maker.by), now + LINK_SECONDS)
        return code, now + LINK_SECONDS

    def enter(self, peer: str, *, code: str | None, token: str | None, user: int | None = None) -> tuple[str, Identity]:
        """Sign a browser in; returns its cookie's value and who it is. `user`: whose process asks, where it is one of this machine."""
        if (code is None) == (token is None):
            raise UsageError("a sign-in needs a code or a token", 'send {"code": …} or {"token": …}')
        peer = _household(peer) if user is None else f"{_household(peer)} of user {user}"
        if wait := self._failures.wait(peer):
            raise TooMany(int(wait) + 1)
        try:
            identity = self._by_code(code) if code is not None else self._by_token(token or "")
        except Unknown:
            self._failures.add(peer)
            raise
        return self._tokens.sign_in(identity)

    def leave(self, identity: Identity) -> None:
        """Sign a browser out; nothing for who is none."""
        if identity.kind == "login" and identity.id is not None:
            self._tokens.revoke(identity.id)

    def _by_code(self, code: str) -> Identity:
        link = self._links.pop(_hash(code), None)
        if link is None or link.until <= self._clock():
            raise Unknown(f"this link was used already, or is older than {LINK_SECONDS // 60} minutes", _AGAIN)
        return link.identity

    def _by_token(self, token: str) -> Identity:
        identity = self._tokens.check(token.strip())
        if identity is None or identity.role is None:  # of a session or a node: it opens one thing, and nothing else
            raise Unknown("this token is not, or no longer, valid for signing in", _AGAIN)
        return identity


def _household(peer: str) -> str:
    """Whose address it is: whoever has one of IPv6 has the 2^64 beside it."""
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv4Address):
        return peer
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))


def _hash(code: str) -> str:
    return hashlib.sha256(code.encode(errors="replace")).hexdigest()
