"""Tokens: created, checked and revoked; only digests are stored."""

from __future__ import annotations

import json
import stat
from contextlib import ExitStack
from pathlib import Path

import pytest

from agent_orchestrator.base.api_tokens import MAX_SIGN_INS, Identity, Tokens
from agent_orchestrator.base.home import Home
from agent_orchestrator.errors import AoError, Conflict, NotFound, UsageError


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "ao")


def test_the_command_lines_token_is_created_once_and_private(home: Home) -> None:
    token = Tokens(home).cli_token()
    assert home.token.read_text().strip() == token
    assert stat.S_IMODE(home.token.stat().st_mode) == 0o600
    home.token.chmod(0o644)
    again = Tokens(home)
    identity = again.check(token)
    assert identity is not None
    assert (identity.kind, identity.role) == ("cli", "admin")
    assert stat.S_IMODE(home.token.stat().st_mode) == 0o600


def test_a_named_token_has_its_role_until_it_is_revoked(home: Home) -> None:
    tokens = Tokens(home)
    id_, token = tokens.create("ci", "viewer")
    assert Tokens(home).check(token) == Identity("token", "viewer", name="ci", id=id_, by=id_)
    file = home.path / "tokens.json"
    assert token not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [entry["id"] for entry in Tokens(home).list()] == [id_]
    tokens.revoke("ci")
    assert tokens.check(token) is None
    assert Tokens(home).check(token) is None


def test_a_sessions_token_cannot_be_changed(home: Home) -> None:
    token = Tokens(home).for_session("app-v1.2", 3)
    assert Tokens(home).check(token) == Identity("session", session="app-v1.2", generation=3)
    assert Tokens(home).check(token.replace("app-v1.2", "app-v1.3")) is None
    assert Tokens(home).check(token.replace(".3.", ".4.")) is None
    assert Tokens(Home(home.path.parent / "other")).check(token) is None


def test_an_agents_token_differs_from_its_nodes_token(home: Home) -> None:
    tokens = Tokens(home)
    agents, nodes = tokens.for_session("app-fix", 3), tokens.for_upload("app-fix", 3)
    assert tokens.check(nodes) == Identity("saver", session="app-fix", generation=3)
    assert tokens.check(agents.replace("aos_", "aow_")) is None and tokens.check(nodes.replace("aow_", "aos_")) is None
    assert tokens.check(nodes.replace(".3.", ".4.")) is None


def test_a_signature_for_one_purpose_is_invalid_for_others(home: Home) -> None:
    tokens = Tokens(home)
    signed = {
        "saving": tokens.for_upload("app-fix", 1).removeprefix("aow_"),
        "node": tokens.for_node("app-fix.1").removeprefix("aon_"),
        "page": f"app-fix.1.{tokens.page_proof('app-fix.1')}",
        "answer": f"app-fix.1.{tokens.seal('app-fix.1')}",
    }
    for purpose, content in signed.items():
        for kind in ("aos", "aow", "aon"):
            assert tokens.check(f"{kind}_{purpose} {content}") is None, (kind, purpose)
        accepted = {kind for kind in ("aos", "aow", "aon") if tokens.check(f"{kind}_{content}")}
        assert accepted == {"saving": {"aow"}, "node": {"aon"}}.get(purpose, set()), purpose
    agents = tokens.for_session("app-fix", 1)
    assert not any(tokens.check(agents.replace("aos_", kind)) for kind in ("aow_", "aon_"))


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "aow_",
        "aow_a.1.x",
        "aos_",
        "aos_a.b.c",
        "aos_..",
        "aot_",
        "aot_x.y",
        "aoc_x",
        "ü",
        "\udcff",
        "aos_a.١.x",
    ],
)
def test_an_invalid_token_is_refused(home: Home, token: str) -> None:
    assert Tokens(home).check(token) is None


def test_a_wrong_secret_for_a_known_id_is_refused(home: Home) -> None:
    tokens = Tokens(home)
    id_, _ = tokens.create("ci", "admin")
    assert tokens.check(f"aot_{id_}.guess") is None


def test_many_sign_ins_replace_only_those_of_the_same_user(home: Home) -> None:
    tokens = Tokens(home)
    eyes, hands = (tokens.check(tokens.create(name, "viewer")[1]) for name in ("eyes", "hands"))
    assert eyes and hands
    kept, other = tokens.sign_in(hands)
    cookies: list[tuple[str, Identity]] = []
    with ExitStack() as watches:
        ended = {other.id: watches.enter_context(tokens.watch_revocation(str(other.id)))}
        for _ in range(MAX_SIGN_INS + 3):
            cookie, who = tokens.sign_in(eyes)
            cookies.append((cookie, who))
            ended[who.id] = watches.enter_context(tokens.watch_revocation(str(who.id)))
    assert [tokens.check_sign_in(cookie) is not None for cookie, _ in cookies] == [False] * 3 + [True] * MAX_SIGN_INS
    assert [id_ for id_, event in ended.items() if event.is_set()] == [who.id for _, who in cookies[:3]]
    assert tokens.check_sign_in(kept) and len(tokens.list()) == 2 + 1 + MAX_SIGN_INS


def test_names_and_roles_are_checked(home: Home) -> None:
    tokens = Tokens(home)
    tokens.create("ci", "viewer")
    with pytest.raises(Conflict, match="named ci already"):
        tokens.create("ci", "admin")
    with pytest.raises(UsageError, match="'king'"):
        tokens.create("x", "king")
    for name in ("", " ", "a\nb", "x" * 101):
        with pytest.raises(UsageError):
            tokens.create(name, "viewer")
    with pytest.raises(NotFound, match="no token none"):
        tokens.revoke("none")


@pytest.mark.parametrize("text", ["", "{", json.dumps({"tokens": [{"id": "x"}]}), "[]"])
def test_a_broken_file_is_named_and_not_overwritten(home: Home, text: str) -> None:
    home.create_folders()
    file = home.path / "tokens.json"
    file.write_text(text)
    with pytest.raises(AoError, match=r"tokens\.json cannot be read"):
        Tokens(home).create("ci", "viewer")
    assert file.read_text() == text
