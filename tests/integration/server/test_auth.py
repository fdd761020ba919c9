"""Authentication and authorization: roles, tokens, sockets, host names and origins."""

from __future__ import annotations

import pytest

from tests.integration.server.conftest import ServerWorld

pytestmark = pytest.mark.anyio

READ_REQUEST = ("GET", "/api/sessions/app-fix", None)
WRITE_REQUEST = ("POST", "/api/sessions/app-fix/message", {"content": "hello"})
ADMIN_REQUEST = ("GET", "/api/tokens", None)


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("viewer", (200, 403, 403)),
        ("operator", (200, 202, 403)),
        ("admin", (200, 202, 200)),
        ("cli", (200, 202, 200)),
        (None, (401,) * 3),
    ],
)
async def test_roles_over_tcp_allow_what_they_name(
    world: ServerWorld, role: str | None, expected: tuple[int, ...]
) -> None:
    client = world.tcp(role)
    answers = [await client.ask(*request) for request in (READ_REQUEST, WRITE_REQUEST, ADMIN_REQUEST)]
    assert tuple(answer.status for answer in answers) == expected


async def test_the_unix_socket_needs_no_token(world: ServerWorld) -> None:
    assert [(await world.unix.ask(*request)).status for request in (READ_REQUEST, WRITE_REQUEST, ADMIN_REQUEST)] == [
        200,
        202,
        200,
    ]


@pytest.mark.parametrize("path", ["/", "/healthz", "/sessions/app-v1.2"])
async def test_health_and_the_page_need_no_token(world: ServerWorld, path: str) -> None:
    assert (await world.tcp().get(path)).status == 200


@pytest.mark.parametrize(
    "path", ["/api/sessions", "/openapi.json", "/api/nothing", "/metrics", "/healthz/../api/sessions", "/api"]
)
async def test_all_other_paths_need_a_token_even_missing_ones(world: ServerWorld, path: str) -> None:
    answer = await world.tcp().get(path)
    assert answer.status == 401
    assert "ao token new" in answer.json()["remedy"]
    assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_a_wrong_or_revoked_token_is_refused(world: ServerWorld) -> None:
    token = world.services.tokens.create("gone", "admin")[1]
    assert (await world.tcp(token=token).ask(*READ_REQUEST)).status == 200
    world.services.tokens.revoke("gone")
    assert (await world.tcp(token=token).ask(*READ_REQUEST)).status == 401
    assert (await world.tcp(token="aot_x.y").ask(*READ_REQUEST)).status == 401
    assert (await world.tcp(token="ünknown").ask(*READ_REQUEST)).status == 401


async def test_a_sessions_token_reads_its_own_session_only(world: ServerWorld) -> None:
    client = world.tcp(token=world.services.tokens.for_session("app-fix", 1))
    for path in ("/api/sessions/app-fix", "/api/sessions/app-fix/messages"):
        assert (await client.get(path)).status == 200, path
    for path in ("/api/sessions/app-fix/events", "/api/sessions/app-fix/timeline", "/api/sessions/app-fix/review"):
        assert (await client.get(path)).status == 403, path
    for path in ("/api/sessions", "/api/sessions/app-fix-2", "/api/sessions/fix", "/api/sessions/app-fix/environment"):
        assert (await client.get(path)).status == 403, path
    for path in ("/api/sessions/app-fix/attach", "/api/events", "/api/config/help", "/openapi.json"):
        assert (await client.get(path)).status == 403, path
    assert (await client.ask(*WRITE_REQUEST)).status == 403
    other = world.tcp(token=world.services.tokens.for_session("app", 1))
    assert (await other.get("/api/sessions/app-fix")).status == 403


async def test_secrets_are_for_administrators_and_attach_for_this_machine(world: ServerWorld) -> None:
    operator, admin = world.tcp("operator"), world.tcp("admin")
    assert (await operator.get("/api/sessions/app-fix/environment")).status == 403
    assert (await operator.get("/api/config/value?key=port")).status == 403
    assert (await operator.get("/api/projects/trust")).status == 403
    assert (await operator.ask("POST", "/api/shutdown", {})).status == 403
    assert world.services.ended == []
    assert (await admin.get("/api/sessions/app-fix/environment")).status == 200
    assert (await admin.get("/api/sessions/app-fix/attach")).status == 403
    assert (await world.unix.get("/api/sessions/app-fix/attach")).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:3000", "127.0.0.1.evil.example", "10.0.0.1", "[", "a@b:x"]
)
async def test_another_host_name_is_refused_even_with_a_token(world: ServerWorld, host: str) -> None:
    client = world.tcp("admin")
    assert (await client.get("/api/sessions", Host=host)).status == 403
    assert (await client.get("/", Host=host)).status == 403


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.9:3000", "[::1]:3000"])
async def test_host_names_of_the_loopback_are_accepted(world: ServerWorld, host: str) -> None:
    assert (await world.tcp("viewer").get("/api/sessions", Host=host)).status == 200


async def test_another_origin_is_refused_over_tcp(world: ServerWorld) -> None:
    client = world.tcp("admin")
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", "http://localhost", ""):
        expected = 403 if origin else 200
        assert (await client.get("/api/sessions", Origin=origin)).status == expected, origin
    assert (await client.get("/api/sessions", Origin=world.url)).status == 200
    assert (await client.get("/api/sessions", Sec_Fetch_Site="same-site")).status == 403
    assert (await client.get("/", Sec_Fetch_Site="cross-site")).status == 200
    assert (await world.unix.get("/api/sessions", Origin="http://evil.example")).status == 200


async def test_the_callers_folder_is_used_only_over_the_unix_socket(world: ServerWorld) -> None:
    await world.unix.get("/api/sessions", X_AO_Cwd="/home/a%20b")
    await world.tcp("admin").get("/api/sessions", X_AO_Cwd="/home/a%20b")
    assert world.services.sessions.calls == [("list", "app"), ("list", None)]
