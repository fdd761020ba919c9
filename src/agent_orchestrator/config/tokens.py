"""Who may ask over TCP: the command line's own token, named tokens with a role, browsers that signed in, and two tokens a session.

Named tokens and sign-ins are kept as hashes in `$AO_HOME/tokens.json`. A session's tokens are signatures over its id and
launch, so they need no storage; its agent's opens nothing but what concerns that session, its node's nothing but its repository. Only the
daemon writes here.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent_orchestrator.base.home import Home
from agent_orchestrator.base.text.redaction import KNOWN
from agent_orchestrator.errors import AoError, Conflict, NotFound, UsageError, machine_short

ROLES = ("viewer", "operator", "admin")
"""Each may do what the ones before it may: look, work with sessions, change the house."""
SIGN_IN_DAYS = 30
"""Days after which a browser must sign in again."""
SIGN_INS = 100
"""Browsers that are signed in at once by one token, or by links of one maker; whoever comes next takes the place of the first."""
_SESSION = re.compile(r"[\w.-]+")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks. `kind`: `local` (Unix socket), `cli`, `token`, `login`, `session`, `saver` (a session's node, which brings its work) or
    `node`; the last three have no role, only themselves."""

    kind: str
    role: str | None = None
    session: str | None = None
    generation: int | None = None
    name: str | None = None
    id: str | None = None
    """Of the token or sign-in, as the list shows it."""
    by: str | None = None
    """What it stands and falls with: the token that a browser signed in with, or the token itself."""

    @property
    def is_agent(self) -> bool:
        """An agent asks, by its token or by its own `ao`: it reads no words that wait for a person's leave."""
        return self.session is not None


@dataclass(frozen=True, slots=True)
class _Named:
    id: str
    name: str
    role: str
    hash: str
    createdAt: str  # noqa: N815 - as it stands in the file
    kind: str = "token"
    """`token`, `login`: a browser that signed in, or `node`: a machine of the cluster."""
    expiresAt: str | None = None  # noqa: N815
    by: str | None = None
    """The token that it was signed in with, where it was one: when that goes, so does this."""


class Tokens:
    """Makes, checks and revokes tokens and sign-ins."""

    def __init__(self, home: Home, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.on_end: list[Callable[[frozenset[str]], None]] = []
        """Called with the ids of tokens and sign-ins that are worthless from now on."""
        self._token_file = home.token
        self._file = home.path / "tokens.json"
        self._secret_file = home.path / "token.secret"
        self._cli: str | None = None
        self._secret: bytes | None = None
        self._named: dict[str, _Named] | None = None

    def cli_token(self) -> str:
        """The command line's own token; made and written to `$AO_HOME/token` if it is not there yet."""
        if self._cli is None:
            self._cli = _read_or_make(self._token_file, lambda: f"aoc_{secrets.token_urlsafe(32)}")
        return self._cli

    def for_session(self, session: str, generation: int) -> str:
        """The token that a session's agent gets: good for its own session only."""
        return f"aos_{session}.{generation}.{self._sign(f'{session}.{generation}')}"

    def for_saving(self, session: str, generation: int) -> str:
        """The token that a session's node brings its work with: agents do not have it, for what is saved is the daemon's word."""
        return f"aow_{session}.{generation}.{self._sign(f'saving {session}.{generation}')}"

    def new(self, name: str, role: str) -> tuple[str, str]:
        """Make a named token; returns its id and the token itself, which is shown this once."""
        if role not in ROLES:
            raise UsageError(f"there is no role {role!r}", f"choose one of {', '.join(ROLES)}")
        if not name.strip() or len(name) > 100 or not name.isprintable():
            raise UsageError(f"{name!r} is no name for a token", "give 1 to 100 printable characters")
        named = self._load()
        if any(token.name == name and token.kind == "token" for token in named.values()):
            raise Conflict(
                f"there is a token named {name} already",
                f"revoke it with `ao token revoke {name}` or choose another name",
            )
        id_ = secrets.token_hex(4)
        token = f"aot_{id_}.{secrets.token_urlsafe(32)}"
        self._save({**named, id_: _Named(id_, name, role, _hash(token), self._at())})
        return id_, token

    def for_node(self, node: str) -> str:
        """The token that a worker of the cluster gets: opens nothing but its link to the daemon."""
        return f"aon_{node}.{self._sign(f'node {node}')}"

    def new_node(self, node: str) -> tuple[str, str]:
        """Make a token for a machine that is started by hand, which can be revoked; one that it had before is worthless then."""
        named = self._load()
        gone = frozenset(key for key, other in named.items() if (other.kind, other.name) == ("node", node))
        id_ = secrets.token_hex(4)
        token = f"aot_{id_}.{secrets.token_urlsafe(32)}"
        self._forget({**named, id_: _Named(id_, node, "node", _hash(token), self._at(), "node")}, gone)
        return id_, token

    def sign_in(self, identity: Identity) -> tuple[str, Identity]:
        """Sign a browser in with this one's role, for as long as its token is good; returns the cookie's value, and who it is."""
        id_ = secrets.token_hex(4)
        secret = f"aol_{id_}.{secrets.token_urlsafe(32)}"
        made, until = self._at(), self._at(SIGN_IN_DAYS * 86_400)
        name, role = identity.name or "browser", identity.role or ROLES[0]
        entry = _Named(id_, name, role, _hash(secret), made, "login", until, identity.by)
        named = self._load()
        others = [key for key, other in named.items() if (other.kind, other.by) == ("login", identity.by)]
        self._forget(named | {id_: entry}, frozenset(others[: max(0, len(others) + 1 - SIGN_INS)]))
        return secret, self._who(entry)

    def list(self) -> list[dict[str, Any]]:
        """The named tokens and the sign-ins, without what would open anything."""
        return [
            {
                "id": token.id,
                "name": token.name,
                "role": token.role,
                "createdAt": token.createdAt,
                "kind": token.kind,
                "expiresAt": token.expiresAt,
            }
            for token in self._load().values()
            if self._holds(token)
        ]

    def revoke(self, id: str) -> dict[str, Any]:  # noqa: A002 - the API's own name
        """Make a token, given by id or name, or a sign-in, given by id, worthless from now on."""
        named = self._load()
        for token in named.values():
            if id == token.id or (id == token.name and token.kind != "login"):
                gone = frozenset(key for key, other in named.items() if token.id in (key, other.by))
                self._forget(named, gone)
                return {"id": token.id, "name": token.name, "role": token.role}
        raise NotFound(f"there is no token {id}", "`ao token list` shows them")

    def left(self, id: str) -> float | None:  # noqa: A002 - the API's own name
        """Seconds for which a token or sign-in is good yet; none: until it is revoked."""
        entry = self._load().get(id)
        if entry is None:
            return 0.0
        until = entry.expiresAt
        return None if until is None else max(0.0, datetime.fromisoformat(until).timestamp() - self._clock())

    def check(self, token: str) -> Identity | None:
        """Who shows this token; none if nobody of ours. A sign-in is no token."""
        if token.startswith("aos_"):
            return self._check_session(token, "session")
        if token.startswith("aow_"):
            return self._check_session(token, "saver", "saving ")
        if token.startswith("aon_"):
            return self._check_node(token)
        if token.startswith("aot_"):
            return self._check_named(token, "token") or self._check_named(token, "node")
        return Identity("cli", "admin", by=self._cli_name()) if _same(self.cli_token(), token) else None

    def check_sign_in(self, secret: str) -> Identity | None:
        """Which browser shows this cookie; none if it has not signed in, or no longer."""
        return self._check_named(secret, "login") if secret.startswith("aol_") else None

    def page_of(self, secret: str) -> str:
        """What a page of ours shows besides this cookie: browsers send cookies to whatever listens on other ports, and this nowhere."""
        return self._sign(f"page {secret}")

    def is_of_page(self, secret: str, page: str) -> bool:
        """Whether who shows this cookie knows what only our page does."""
        return _same(self.page_of(secret), page)

    def seal(self, subject: str) -> str:
        """What proves that a link with this in it was made here."""
        return self._sign(f"answer {subject}")

    def _check_named(self, secret: str, kind: str) -> Identity | None:
        entry = self._load().get(secret[4:].partition(".")[0])
        if entry is None or entry.kind != kind or not _same(entry.hash, _hash(secret)) or not self._holds(entry):
            return None
        return self._who(entry)

    def _who(self, entry: _Named) -> Identity:
        by = entry.by if entry.kind == "login" else entry.id
        role = None if entry.kind == "node" else entry.role
        return Identity(entry.kind, role, name=entry.name, id=entry.id, by=by)

    def _holds(self, entry: _Named) -> bool:
        """Whether it is still in time, and so is what it was made with."""
        if entry.expiresAt is not None and entry.expiresAt <= self._at():
            return False
        return entry.by is None or entry.by in self._load() or entry.by == self._cli_name()

    def _cli_name(self) -> str:
        """Names the command line's token without giving it away."""
        return f"cli-{_hash(self.cli_token())[:16]}"

    def _check_session(self, token: str, kind: str, purpose: str = "") -> Identity | None:
        subject, _, signature = token[4:].rpartition(".")
        session, _, generation = subject.rpartition(".")
        # An agent's token is signed without a purpose, so that those of running agents stay good: no purpose may pass for its session.
        if not _SESSION.fullmatch(session) or not generation.isdecimal():
            return None
        if not _same(self._sign(purpose + subject), signature):
            return None
        return Identity(kind, session=session, generation=int(generation))

    def _check_node(self, token: str) -> Identity | None:
        node, _, signature = token[4:].rpartition(".")
        if not node or not _same(self._sign(f"node {node}"), signature):
            return None
        return Identity("node", name=node)

    def _sign(self, subject: str) -> str:
        if self._secret is None:
            self._secret = _read_or_make(self._secret_file, lambda: secrets.token_urlsafe(32)).encode()
        digest = hmac.digest(self._secret, subject.encode(), "sha256")
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def _at(self, later: float = 0.0) -> str:
        return (
            datetime.fromtimestamp(self._clock() + later, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        )

    def _load(self) -> dict[str, _Named]:
        if self._named is None:
            try:
                entries = json.loads(self._file.read_text())["tokens"]
                self._named = {entry["id"]: _Named(**entry) for entry in entries}
            except FileNotFoundError:
                self._named = {}
            except (OSError, ValueError, KeyError, TypeError) as error:
                remedy = "remove it; named tokens must then be made anew"
                raise machine_short(error) or AoError(f"{self._file} cannot be read: {error}", remedy) from None
        return self._named

    def _forget(self, named: dict[str, _Named], gone: frozenset[str]) -> None:
        """Keep these without those, whose streams and terminals end."""
        self._save({key: other for key, other in named.items() if key not in gone})
        for tell in self.on_end:
            tell(gone)

    def _save(self, named: dict[str, _Named]) -> None:
        named = {key: token for key, token in named.items() if token.expiresAt is None or token.expiresAt > self._at()}
        _write_private(self._file, json.dumps({"tokens": [asdict(token) for token in named.values()]}, indent=2) + "\n")
        self._named = named


def _same(known: str, given: str) -> bool:
    return hmac.compare_digest(known.encode(), given.encode(errors="replace"))


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def _read_or_make(path: Path, make: Callable[[], str]) -> str:
    text = ""
    with contextlib.suppress(FileNotFoundError):
        if text := path.read_text().strip():
            path.chmod(0o600)
    if not text:
        text = make()
        _write_private(path, text + "\n")
    KNOWN.learn({path.name: text})
    return text


def _write_private(path: Path, text: str) -> None:
    """Replace a file in one step, never readable by others, safe on the disk when this returns."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + "~")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
