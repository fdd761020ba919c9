"""The dashboard's files: served by name only, cached according to their names, and compressed."""

from __future__ import annotations

import contextlib
import gzip
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.errors import NotFound
from agent_orchestrator.server import dashboard_files
from tests.integration.server.conftest import ServerWorld

pytestmark = pytest.mark.anyio

INDEX = b'<!doctype html><script type="module" src="/assets/index-abc.js"></script>' + b" " * 500
SCRIPT = b"console.log(1);" * 100
TYPES = {
    "assets/index-abc.js": "text/javascript; charset=utf-8",
    "assets/style-abc.css": "text/css; charset=utf-8",
    "assets/font-abc.woff2": "font/woff2",
    "assets/onig-abc.wasm": "application/wasm",
    "icon.svg": "image/svg+xml",
    "manifest.webmanifest": "application/manifest+json",
}


@pytest.fixture
def dist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a built dashboard; must be requested before `world`."""
    folder = tmp_path / "dist"
    (folder / "assets").mkdir(parents=True)
    for name in TYPES:
        (folder / name).write_bytes(SCRIPT)
    (folder / "index.html").write_bytes(INDEX)
    (tmp_path / "secret.txt").write_text("secret")
    monkeypatch.setattr(dashboard_files.Dashboard.__init__, "__defaults__", (folder,))
    return folder


async def test_every_view_gets_the_page_with_a_strict_content_security_policy(dist: Path, world: ServerWorld) -> None:
    for path in ("/", "/index.html", "/sessions/app-v1.2", "/queue/", "/settings?x=/../y"):
        answer = await world.tcp().get(path)
        assert (answer.status, answer.body) == (200, INDEX), path
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["form-action"] == policy["base-uri"] == "'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"


async def test_files_have_their_type_and_hashed_names_are_cached_forever(dist: Path, world: ServerWorld) -> None:
    for name, kind in TYPES.items():
        answer = await world.tcp().get(f"/{name}")
        lasting = "public, max-age=31536000, immutable" if name.startswith("assets/") else "no-cache"
        assert (answer.status, answer.body) == (200, SCRIPT), name
        assert (answer.headers["content-type"], answer.headers["cache-control"]) == (kind, lasting)


async def test_files_are_compressed_and_unchanged_ones_not_sent(dist: Path, world: ServerWorld) -> None:
    compressed = await world.tcp().get("/assets/index-abc.js", Accept_Encoding="br, gzip;q=0.8")
    assert compressed.headers["content-encoding"] == "gzip"
    assert compressed.headers["vary"] == "Accept-Encoding"
    assert gzip.decompress(compressed.body) == SCRIPT and len(compressed.body) < 200
    plain = await world.tcp().get("/assets/index-abc.js", Accept_Encoding="gzip;q=0")
    assert "content-encoding" not in plain.headers and plain.body == SCRIPT
    font = await world.tcp().get("/assets/font-abc.woff2", Accept_Encoding="gzip")
    assert "content-encoding" not in font.headers
    fresh = await world.tcp().get("/", If_None_Match=(await world.tcp().get("/")).headers["etag"])
    assert (fresh.status, fresh.body) == (304, b"")
    assert "content-security-policy" in fresh.headers


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/assets/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/assets/%2e%2e%2f%2e%2e%2fsecret.txt",
        "/%252e%252e/secret.txt",
        "/..%5csecret.txt",
        "/assets\\..\\..\\secret.txt",
        "/..%00/secret.txt",
        "//etc/passwd",
        "/%2fetc%2fpasswd",
        "/.git/config",
        "/assets/.env",
        "/sessions/%1b%5b31m",
        "/assets/nothing-abc.js",
        "/assets/",
    ],
)
async def test_paths_cannot_leave_the_dashboard_folder(dist: Path, world: ServerWorld, path: str) -> None:
    answer = await world.tcp().get(path)
    assert answer.status == 404
    assert b"secret\n" not in answer.body and b"root:" not in answer.body


async def test_absolute_paths_do_not_serve_files(dist: Path, world: ServerWorld, tmp_path: Path) -> None:
    answer = await world.tcp().get(f"/{tmp_path}/secret.txt")
    assert answer.status == 404
    plain = await world.tcp().get(f"{tmp_path}/secret.txt")  # looks like a view and is served as one
    assert plain.body == INDEX


async def test_a_rebuilt_dashboard_is_served_at_once(dist: Path, world: ServerWorld) -> None:
    assert (await world.tcp().get("/")).body == INDEX
    (dist / "assets" / "later-def.js").write_bytes(b"later")
    fresh = dist / "index.new"
    fresh.write_bytes(b"<!doctype html>new")
    fresh.replace(dist / "index.html")
    assert (await world.tcp().get("/")).body == b"<!doctype html>new"
    assert (await world.tcp().get("/assets/later-def.js")).body == b"later"


async def test_a_dashboard_that_was_not_built_says_so(dist: Path, world: ServerWorld) -> None:
    (dist / "index.html").unlink()
    answer = await world.tcp().get("/sessions/x")
    assert (answer.status, b"make dashboard" in answer.body) == (200, True)
    assert "default-src 'none'" in answer.headers["content-security-policy"]


async def test_the_api_keeps_its_own_paths(dist: Path, world: ServerWorld) -> None:
    for path in ("/api", "/api/", "/api/nothing", "/metrics/x", "/healthz/x"):
        answer = await world.tcp("cli").get(path)
        assert (answer.status, answer.headers["content-type"]) == (404, "application/problem+json"), path
    assert (await world.tcp("cli").ask("POST", "/sessions/x", {})).status == 404
    assert (await world.tcp().ask("POST", "/", {})).status == 401


@pytest.mark.parametrize("path", ["/../secret.txt", "//etc/passwd", "/assets/../../secret.txt", "/./icon.svg"])
async def test_the_file_server_itself_refuses_traversing_paths(dist: Path, path: str) -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "GET", "path": path, "headers": []}
    with contextlib.suppress(NotFound):
        await dashboard_files.Dashboard(dist)(scope, receive, send)
    assert b"".join(message.get("body", b"") for message in sent) in (b"", INDEX)
