"""The models of answers about tokens, and about who is signed in."""

from __future__ import annotations

from typing import Literal

from agent_orchestrator.server.schema.models.answer import Answer


class Token(Answer):
    """A named token, or a browser that signed in, without what would open anything."""

    id: str
    name: str
    role: str
    created_at: str
    kind: Literal["token", "login", "node"]
    expires_at: str | None


class Tokens(Answer):
    """All named tokens, and all browsers that are signed in."""

    tokens: list[Token]


class MadeToken(Token):
    """A new token; it is shown this once."""

    token: str


class Me(Answer):
    """Who asks."""

    kind: Literal["local", "cli", "token", "login", "session"]
    role: Literal["viewer", "operator", "admin"] | None
    name: str | None
    version: str


class SignedIn(Me):
    """Who signed in, and what his pages must show besides the cookie."""

    page: str


class LoginLink(Answer):
    """An address that signs in the browser that opens it, once."""

    url: str
    expires_at: str
