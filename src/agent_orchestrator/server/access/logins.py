"""Browser sign-ins: by a single-use link that expires soon, or by a token. After too many failures, an address must wait.

Links are kept in memory, as hashes: they end with the daemon.
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from agent_orchestrator.base.api_tokens import Identity, Tokens
from agent_orchestrator.base.attempt_limit import RateLimiter
from agent_orchestrator.errors import Denied, UsageError

LINK_LIFETIME_SECONDS = 120
MAX_FAILURES = 10
"""How many sign-ins may fail per minute from one address; on this machine, per user."""
FAILURE_WINDOW_SECONDS = 60.0
_REMEDY = "run `ao dashboard` for a new link, or `ao token new NAME` for a token"


class InvalidLogin(Denied):
    """Raised for a link or token that is not valid."""

    category = "unauthorized"
    http_status = 401


class TooManyFailures(Denied):
    """Raised after too many failures from one address; `wait` is the number of seconds for which it is refused."""

    category = "too-many"
    http_status = 429

    def __init__(self, wait: int) -> None:
        super().__init__("too many sign-ins failed from this address", f"try again in {wait} s")
        self.wait = wait


@dataclass(frozen=True, slots=True)
class _SignInLink:
    """What a link signs in as, and until when."""

    identity: Identity
    expires_at: float


class Logins:
    """Signs browsers in and out."""

    def __init__(self, tokens: Tokens, clock: Callable[[], float] = time.time) -> None:
        self._tokens, self._clock = tokens, clock
        self._links: dict[str, _SignInLink] = {}
        self._failures = RateLimiter(MAX_FAILURES, FAILURE_WINDOW_SECONDS, clock)

    def create_link(self, maker: Identity, role: Literal["viewer", "operator", "admin"]) -> tuple[str, float]:
        """Return a code that signs in one browser with this role, and when it expires."""
        now = self._clock()
        self._links = {key: link for key, link in self._links.items() if link.expires_at > now}
        code = secrets.token_urlsafe(32)
        self._links[_hash(code)] = _SignInLink(Identity("login", role, by=maker.by), now + LINK_LIFETIME_SECONDS)
        return code, now + LINK_LIFETIME_SECONDS

    def sign_in(
        self, peer: str, *, code: str | None, token: str | None, user: int | None = None
    ) -> tuple[str, Identity]:
        """Sign a browser in; return the cookie's value and the identity. `user` is the user id of the calling process if it is on this
        machine.
        """
        if (code is None) == (token is None):
            raise UsageError("a sign-in needs a code or a token", 'send {"code": …} or {"token": …}')
        peer = _network_of(peer) if user is None else f"{_network_of(peer)} of user {user}"
        if wait := self._failures.seconds_until_allowed(peer):
            raise TooManyFailures(int(wait) + 1)
        try:
            identity = self._redeem_code(code) if code is not None else self._identity_of_token(token or "")
        except InvalidLogin:
            self._failures.add(peer)
            raise
        return self._tokens.sign_in(identity)

    def sign_out(self, identity: Identity) -> None:
        """Sign a browser out; do nothing for other identities."""
        if identity.kind == "login" and identity.id is not None:
            self._tokens.revoke(identity.id)

    def _redeem_code(self, code: str) -> Identity:
        """Return the identity of a link's code, which is used up by this; raise Unknown if it is not valid."""
        link = self._links.pop(_hash(code), None)
        if link is None or link.expires_at <= self._clock():
            raise InvalidLogin(
                f"this link was used already, or is older than {LINK_LIFETIME_SECONDS // 60} minutes", _REMEDY
            )
        return link.identity

    def _identity_of_token(self, token: str) -> Identity:
        """Return the identity of a token; raise Unknown if it is not valid for signing in."""
        identity = self._tokens.check(token.strip())
        if identity is None or identity.role is None:  # a token of a session or a node has one purpose only
            raise InvalidLogin("this token is not, or no longer, valid for signing in", _REMEDY)
        return identity


def _network_of(peer: str) -> str:
    """Return the address that failures are counted for: the /64 network of an IPv6 address, because one machine may use all of it."""
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
    """Return the hash that a code is kept as."""
    return hashlib.sha256(code.encode(errors="replace")).hexdigest()
