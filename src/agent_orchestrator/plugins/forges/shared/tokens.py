"""Where a token for a forge comes from: the configuration, the environment, the keyring, or the forge's own command line.

Tokens are never shown: each is registered for redaction when it is read.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent_orchestrator.base import keyring
from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.errors import AoError, Denied, UsageError
from agent_orchestrator.protocols.forge import Access, Author
from agent_orchestrator.protocols.host import Host

_TOKEN = re.compile(r"[\x21-\x7e]+")
"""The characters that a token may have: printable ASCII without spaces."""


@dataclass(frozen=True, slots=True)
class ForgeToken:
    """A secret and its source. It is redacted from all output once it exists."""

    value: str = field(repr=False)
    source: str
    """Where it was found, for people: `scm.token`, `GITHUB_TOKEN`, `gh auth token` …"""

    def __post_init__(self) -> None:
        REDACTOR.learn({self.source: self.value})

    def __str__(self) -> str:
        return f"the token from {self.source}"

    @property
    def digest(self) -> str:
        """A short hash that distinguishes two tokens without showing either."""
        return hashlib.sha256(self.value.encode()).hexdigest()[:16]

    def basic_credentials(self, user: str) -> str:
        """Return the token as HTTP basic credentials of a user. They are registered for redaction too."""
        login = base64.b64encode(f"{user}:{self.value}".encode()).decode()
        REDACTOR.learn({self.source: login})
        return login


def token_from_config(value: object, key: str) -> ForgeToken | None:
    """Return the token that the configuration has under `key`, or None. Raise `UsageError` if it is not a valid token."""
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not _TOKEN.fullmatch(value.strip()):
        raise UsageError(f"{key} is no token", "write ${NAME} to take it from the environment")
    return ForgeToken(value.strip(), key)


def token_from_environment(environ: Mapping[str, str], names: Sequence[str]) -> ForgeToken | None:
    """Return the token from the first of these variables that is set, or None."""
    for name in names:
        value = environ.get(name, "").strip()
        if value and _TOKEN.fullmatch(value):
            return ForgeToken(value, name)
    return None


def token_from_environment_or_keyring(environ: Mapping[str, str], names: Sequence[str]) -> ForgeToken | None:
    """Return the token from the first of these variables that is set, otherwise from the keyring, or None."""
    return token_from_environment(environ, names) or token_from_keyring(names)


def token_from_keyring(names: Sequence[str]) -> ForgeToken | None:
    """Return the first of these secrets that the system's keyring has, or None."""
    for name in names:
        value = (keyring.read(name) or "").strip()
        if value and _TOKEN.fullmatch(value):
            return ForgeToken(value, f"{name} in the keyring")
    return None


async def token_from_program(host: Host, argv: Sequence[str], source: str) -> ForgeToken | None:
    """Return the token that a forge's own command line prints; None if the program is missing, not signed in, or fails."""
    if host.which(argv[0]) is None:
        return None
    try:
        result = await host.run(argv, timeout=10.0)
    except AoError:
        return None
    value = result.text.strip()
    return ForgeToken(value, source) if result.code == 0 and _TOKEN.fullmatch(value) else None


def no_token_error(forge: str, remedy: str) -> Denied:
    """Return the error for a missing token. A variable that the remedy names is read only when the daemon starts."""
    return Denied(f"there is no token for {forge}", f"{remedy}; after setting a variable: ao shutdown, then ao start")


def github_token_variables(hostname: str) -> tuple[str, ...]:
    """Return the variables that may hold a token for a host, as `gh` defines them: those of github.com count for no other host."""
    if hostname == "github.com" or hostname.endswith(".ghe.com"):
        return "GITHUB_TOKEN", "GH_TOKEN"
    return "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"


def require_vital_access(access: Access) -> Author:
    """Return the account of the token. Raise `Denied` if the token lacks something vital."""
    for lack in access.lacks:
        if lack.vital:
            raise Denied(str(lack), lack.remedy)
    return access.author
