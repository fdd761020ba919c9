"""Who may send requests over TCP: the command line's token, named tokens with a role, signed-in browsers, two tokens per session.

Named tokens and sign-ins are stored as hashes in `$AO_HOME/tokens.json`. A session's tokens are signatures over its id and launch, so
they need no storage. The agent's token only gives access to what concerns its session, the node's only to its repository. Only the
daemon writes here.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent_orchestrator.base.home import Home
from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.errors import AoError, Conflict, NotFound, UsageError, resource_shortage

ROLES = ("viewer", "operator", "admin")
"""Each role includes the ones before it: view, work with sessions, administrate."""
SIGN_IN_DAYS = 30
"""Days after which a browser must sign in again."""
MAX_SIGN_INS = 100
"""The most browsers signed in at once by one token, or by links of one creator. A further sign-in removes the oldest."""
_SESSION = re.compile(r"[\w.-]+")


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller of a request. `kind`: `local` (Unix socket), `cli`, `token`, `login`, `session`, `saver` (a session's node that uploads
    its commits) or `node`. The last three have no role, only their own session or machine.
    """

    kind: str
    role: str | None = None
    session: str | None = None
    generation: int | None = None
    name: str | None = None
    id: str | None = None
    """The id of the token or sign-in, as the list shows it."""
    by: str | None = None
    """What the access depends on: the token that a browser signed in with, or the token itself."""

    @property
    def is_agent(self) -> bool:
        """Whether an agent is the caller, by its token or its own `ao`: it cannot read text that waits for a person's approval."""
        return self.session is not None


@dataclass(frozen=True, slots=True)
class _StoredToken:
    id: str
    name: str
    role: str
    hash: str
    createdAt: str  # noqa: N815 - as it stands in the file
    kind: str = "token"
    """`token`, `login` (a browser that signed in) or `node` (a machine of the cluster)."""
    expiresAt: str | None = None  # noqa: N815
    by: str | None = None
    """The token that it was signed in with, if any. It is revoked together with that token."""


class Tokens:
    """Creates, checks and revokes tokens and sign-ins."""

    def __init__(self, home: Home, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._revocation_events: dict[str, set[asyncio.Event]] = {}
        """Id of a token or sign-in → the events to set when it is revoked."""
        self._token_file = home.token
        self._file = home.path / "tokens.json"
        self._secret_file = home.path / "token.secret"
        self._cli: str | None = None
        self._secret: bytes | None = None
        self._stored: dict[str, _StoredToken] | None = None

    def cli_token(self) -> str:
        """Return the command line's own token; create it in `$AO_HOME/token` if it does not exist."""
        if self._cli is None:
            self._cli = _read_or_create(self._token_file, lambda: f"aoc_{secrets.token_urlsafe(32)}")
        return self._cli

    def for_session(self, session: str, generation: int) -> str:
        """Return the token for a session's agent, which is valid only for that session."""
        return f"aos_{session}.{generation}.{self._sign(f'{session}.{generation}')}"

    def for_upload(self, session: str, generation: int) -> str:
        """Return the token with which a session's node uploads commits. The agent does not have it: the daemon relies on what was saved."""
        return f"aow_{session}.{generation}.{self._sign(f'saving {session}.{generation}')}"

    def create(self, name: str, role: str) -> tuple[str, str]:
        """Create a named token; return its id and the token itself, which is shown only once."""
        if role not in ROLES:
            raise UsageError(f"there is no role {role!r}", f"choose one of {', '.join(ROLES)}")
        if not name.strip() or len(name) > 100 or not name.isprintable():
            raise UsageError(f"{name!r} is no name for a token", "give 1 to 100 printable characters")
        tokens = self._load()
        if any(token.name == name and token.kind == "token" for token in tokens.values()):
            raise Conflict(
                f"there is a token named {name} already",
                f"revoke it with `ao token revoke {name}` or choose another name",
            )
        id_ = secrets.token_hex(4)
        token = f"aot_{id_}.{secrets.token_urlsafe(32)}"
        self._save({**tokens, id_: _StoredToken(id_, name, role, _hash(token), self._timestamp())})
        return id_, token

    def for_node(self, node: str) -> str:
        """Return the token for a worker of the cluster, which is valid only for its connection to the daemon."""
        return f"aon_{node}.{self._sign(f'node {node}')}"

    def create_for_node(self, node: str) -> tuple[str, str]:
        """Create a revocable token for a machine that is started by hand; an earlier one of that machine is revoked."""
        tokens = self._load()
        removed_ids = frozenset(key for key, entry in tokens.items() if (entry.kind, entry.name) == ("node", node))
        id_ = secrets.token_hex(4)
        token = f"aot_{id_}.{secrets.token_urlsafe(32)}"
        self._save_without(
            {**tokens, id_: _StoredToken(id_, node, "node", _hash(token), self._timestamp(), "node")}, removed_ids
        )
        return id_, token

    def sign_in(self, identity: Identity) -> tuple[str, Identity]:
        """Sign in a browser with this identity's role while its token is valid; return the cookie's value and the new identity."""
        id_ = secrets.token_hex(4)
        secret = f"aol_{id_}.{secrets.token_urlsafe(32)}"
        created, expires = self._timestamp(), self._timestamp(SIGN_IN_DAYS * 86_400)
        name, role = identity.name or "browser", identity.role or ROLES[0]
        entry = _StoredToken(id_, name, role, _hash(secret), created, "login", expires, identity.by)
        tokens = self._load()
        earlier_sign_ins = [
            key for key, earlier in tokens.items() if (earlier.kind, earlier.by) == ("login", identity.by)
        ]
        self._save_without(
            tokens | {id_: entry}, frozenset(earlier_sign_ins[: max(0, len(earlier_sign_ins) + 1 - MAX_SIGN_INS)])
        )
        return secret, self._identity_of(entry)

    def list(self) -> list[dict[str, Any]]:
        """Return the named tokens and the sign-ins, without secrets."""
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
            if self._is_valid(token)
        ]

    def revoke(self, id: str) -> dict[str, Any]:  # noqa: A002 - the API's own name
        """Revoke a token by id or name, or a sign-in by id."""
        tokens = self._load()
        for token in tokens.values():
            if id == token.id or (id == token.name and token.kind != "login"):
                removed_ids = frozenset(key for key, entry in tokens.items() if token.id in (key, entry.by))
                self._save_without(tokens, removed_ids)
                return {"id": token.id, "name": token.name, "role": token.role}
        raise NotFound(f"there is no token {id}", "`ao token list` shows them")

    def seconds_left(self, id: str) -> float | None:  # noqa: A002 - the API's own name
        """Return for how many more seconds a token or sign-in is valid; None if it has no end."""
        entry = self._load().get(id)
        if entry is None:
            return 0.0
        expires = entry.expiresAt
        return None if expires is None else max(0.0, datetime.fromisoformat(expires).timestamp() - self._clock())

    def check(self, token: str) -> Identity | None:
        """Return who has this token, or None if it is not valid. A sign-in is not a token."""
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
        """Return the browser that has this cookie, or None if it is not signed in."""
        return self._check_named(secret, "login") if secret.startswith("aol_") else None

    def page_proof(self, secret: str) -> str:
        """Return the proof that our page sends with this cookie: browsers send the cookie to other ports too, but not this."""
        return self._sign(f"page {secret}")

    def is_of_page(self, secret: str, page: str) -> bool:
        """Return whether the request with this cookie has the proof that only our page has."""
        return _same(self.page_proof(secret), page)

    def seal(self, subject: str) -> str:
        """Return a signature that proves that a link with this subject was created here."""
        return self._sign(f"answer {subject}")

    def _check_named(self, secret: str, kind: str) -> Identity | None:
        entry = self._load().get(secret[4:].partition(".")[0])
        if entry is None or entry.kind != kind or not _same(entry.hash, _hash(secret)) or not self._is_valid(entry):
            return None
        return self._identity_of(entry)

    def _identity_of(self, entry: _StoredToken) -> Identity:
        by = entry.by if entry.kind == "login" else entry.id
        role = None if entry.kind == "node" else entry.role
        return Identity(entry.kind, role, name=entry.name, id=entry.id, by=by)

    def _is_valid(self, entry: _StoredToken) -> bool:
        """Return whether an entry is not expired, and the token it was created with still exists."""
        if entry.expiresAt is not None and entry.expiresAt <= self._timestamp():
            return False
        return entry.by is None or entry.by in self._load() or entry.by == self._cli_name()

    def _cli_name(self) -> str:
        """Return a name for the command line's token that does not reveal it."""
        return f"cli-{_hash(self.cli_token())[:16]}"

    def _check_session(self, token: str, kind: str, purpose: str = "") -> Identity | None:
        subject, _, signature = token[4:].rpartition(".")
        session, _, generation = subject.rpartition(".")
        # An agent's token is signed without a purpose, so that those of running agents stay valid: no purpose may look like a session.
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
            self._secret = _read_or_create(self._secret_file, lambda: secrets.token_urlsafe(32)).encode()
        digest = hmac.digest(self._secret, subject.encode(), "sha256")
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def _timestamp(self, offset: float = 0.0) -> str:
        return (
            datetime.fromtimestamp(self._clock() + offset, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )

    def _load(self) -> dict[str, _StoredToken]:
        if self._stored is None:
            try:
                entries = json.loads(self._file.read_text())["tokens"]
                self._stored = {entry["id"]: _StoredToken(**entry) for entry in entries}
            except FileNotFoundError:
                self._stored = {}
            except (OSError, ValueError, KeyError, TypeError) as error:
                remedy = "remove it; named tokens must then be made anew"
                raise resource_shortage(error) or AoError(f"{self._file} cannot be read: {error}", remedy) from None
        return self._stored

    @contextmanager
    def watch_revocation(self, id_: str) -> Iterator[asyncio.Event]:
        """Give an event that is set when the token or sign-in with this id is revoked."""
        ended = asyncio.Event()
        events = self._revocation_events.setdefault(id_, set())
        events.add(ended)
        try:
            yield ended
        finally:
            events.discard(ended)
            if not events:
                self._revocation_events.pop(id_, None)

    def _save_without(self, tokens: dict[str, _StoredToken], removed_ids: frozenset[str]) -> None:
        """Save the entries except the removed ones, whose streams and terminals are ended."""
        self._save({key: entry for key, entry in tokens.items() if key not in removed_ids})
        for ended in [event for id_ in removed_ids for event in self._revocation_events.get(id_, ())]:
            ended.set()

    def _save(self, tokens: dict[str, _StoredToken]) -> None:
        tokens = {
            key: token
            for key, token in tokens.items()
            if token.expiresAt is None or token.expiresAt > self._timestamp()
        }
        _write_private(
            self._file, json.dumps({"tokens": [asdict(token) for token in tokens.values()]}, indent=2) + "\n"
        )
        self._stored = tokens


def _same(expected: str, actual: str) -> bool:
    return hmac.compare_digest(expected.encode(), actual.encode(errors="replace"))


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def _read_or_create(path: Path, make: Callable[[], str]) -> str:
    text = ""
    with contextlib.suppress(FileNotFoundError):
        if text := path.read_text().strip():
            path.chmod(0o600)
    if not text:
        text = make()
        _write_private(path, text + "\n")
    REDACTOR.learn({path.name: text})
    return text


def _write_private(path: Path, text: str) -> None:
    """Replace a file in one step, never readable by others; it is on the disk when this returns."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + "~")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
