"""Where a token for a forge comes from: the configuration, the environment, the keyring, or the forge's own command line.

It is never shown.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent_orchestrator.base import keyring
from agent_orchestrator.base.text.redaction import KNOWN
from agent_orchestrator.errors import AoError, Denied, UsageError
from agent_orchestrator.protocols.host import Host

_FIT = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class Token:
    """A secret, and where it was found; it is kept out of whatever is shown from now on."""

    value: str = field(repr=False)
    source: str
    """For people: `scm.token`, `GITHUB_TOKEN`, `gh auth token` …"""

    def __post_init__(self) -> None:
        KNOWN.learn({self.source: self.value})

    def __str__(self) -> str:
        return f"the token from {self.source}"

    @property
    def digest(self) -> str:
        """Tells two tokens apart without showing either."""
        return hashlib.sha256(self.value.encode()).hexdigest()[:16]

    def basic(self, user: str) -> str:
        """As a password that goes with a name, the way HTTP takes it: a secret as well."""
        login = base64.b64encode(f"{user}:{self.value}".encode()).decode()
        KNOWN.learn({self.source: login})
        return login


def given(value: object, key: str) -> Token | None:
    """The token that the configuration has under `key`; none where it has none."""
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not _FIT.fullmatch(value.strip()):
        raise UsageError(f"{key} is no token", "write ${NAME} to take it from the environment")
    return Token(value.strip(), key)


def from_environment(environ: Mapping[str, str], names: Sequence[str]) -> Token | None:
    """The first of these variables that is set."""
    for name in names:
        value = environ.get(name, "").strip()
        if value and _FIT.fullmatch(value):
            return Token(value, name)
    return None


def found(environ: Mapping[str, str], names: Sequence[str]) -> Token | None:
    """The first of these variables that is set, or else of these secrets that the keyring has."""
    return from_environment(environ, names) or from_keyring(names)


def from_keyring(names: Sequence[str]) -> Token | None:
    """The first of these secrets that the system's keyring has."""
    for name in names:
        value = (keyring.read(name) or "").strip()
        if value and _FIT.fullmatch(value):
            return Token(value, f"{name} in the keyring")
    return None


async def from_program(host: Host, argv: Sequence[str], source: str) -> Token | None:
    """What a forge's own command line prints; none where it is not there, not signed in, or silent."""
    if host.which(argv[0]) is None:
        return None
    try:
        done = await host.run(argv, timeout=10.0)
    except AoError:
        return None
    value = done.text.strip()
    return Token(value, source) if done.code == 0 and _FIT.fullmatch(value) else None


def none_found(forge: str, remedy: str) -> Denied:
    """There is no token at all. A variable that the remedy names counts where the daemon was started."""
    return Denied(f"there is no token for {forge}", f"{remedy}; after setting a variable: ao shutdown, then ao start")


def github_variables(hostname: str) -> tuple[str, ...]:
    """The variables that may hold a token for a host, as `gh` knows them: those of github.com are for no other one."""
    if hostname == "github.com" or hostname.endswith(".ghe.com"):
        return "GITHUB_TOKEN", "GH_TOKEN"
    return "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"
