"""The dashboard's files as Vite built them: a file by its name, and `index.html` for every view.

Names are looked up in a listing of the folder; a request's path is never used as a file path.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import mimetypes
from pathlib import Path

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agent_orchestrator.errors import NotFound

BUILD_FOLDER = Path(__file__).with_name("dist")
_INDEX = "/index.html"
_ASSETS = "/assets/"
_MEDIA_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".html": "text/html",
    ".json": "application/json",
    ".map": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".txt": "text/plain",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
_COMPRESSED_SUFFIXES = (".woff2", ".png", ".ico")
"""Types that are compressed already."""
_HEADERS = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data:",
            "font-src 'self'",
            "connect-src 'self'",
            "manifest-src 'self'",
            "worker-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
}
_NOT_BUILT_PAGE = b"""\
<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Agent Orchestrator</title></head>
<body><main>
<h1>Agent Orchestrator</h1>
<p>The daemon runs, but its dashboard was not built: run <code>make dashboard</code> in the source folder and load this page again.</p>
<p>The command line does everything: <code>ao status</code></p>
</main></body>
</html>
"""


class _DashboardFile:
    """One file of the dashboard; read at its first use, then cached in the form it is sent."""

    def __init__(self, path: Path, *, lasting: bool) -> None:
        self._path = path
        kind = _MEDIA_TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        self.media_type = f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
        self.cache_control = "public, max-age=31536000, immutable" if lasting else "no-cache"
        self._cached: tuple[str, bytes | None] | None = None

    async def etag_and_gzip(self) -> tuple[str, bytes | None]:
        """Return its ETag and its gzipped content, or None for the latter if that would not be smaller."""
        if self._cached is None:
            self._cached = await asyncio.to_thread(self._load)
        return self._cached

    async def body(self) -> bytes:
        """Return its content."""
        return await asyncio.to_thread(self._path.read_bytes)

    def _load(self) -> tuple[str, bytes | None]:
        """Read and compress the file; return its ETag and its gzipped content, if smaller."""
        body = self._path.read_bytes()
        gzipped = None if self._path.suffix in _COMPRESSED_SUFFIXES else gzip.compress(body, 9, mtime=0)
        etag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
        return etag, gzipped if gzipped is not None and len(gzipped) < len(body) else None


class Dashboard:
    """An ASGI app that answers GET requests for the dashboard's files and views."""

    def __init__(self, folder: Path = BUILD_FOLDER) -> None:
        self._folder = folder
        self._files: dict[str, _DashboardFile] = {}
        self._build_stamp: tuple[int, int] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        try:
            answer = await self._answer(scope["path"], headers)
        except FileNotFoundError:  # it is being rebuilt
            raise NotFound("this file of the dashboard is gone", "load the page again") from None
        await answer(scope, receive, send)

    async def _answer(self, path: str, headers: dict[bytes, bytes]) -> Response:
        """Return the file for a path, gzipped or as 304 where the request allows."""
        file = self._find(path)
        if file is None:
            return Response(_NOT_BUILT_PAGE, headers={**_HEADERS, "Cache-Control": "no-store"}, media_type="text/html")
        etag, gzipped = await file.etag_and_gzip()
        response_headers = {**_HEADERS, "Cache-Control": file.cache_control, "ETag": etag, "Vary": "Accept-Encoding"}
        if etag.encode() in headers.get(b"if-none-match", b""):
            return Response(status_code=304, headers=response_headers)
        if gzipped is not None and _accepts_gzip(headers):
            return Response(
                gzipped, headers={**response_headers, "Content-Encoding": "gzip"}, media_type=file.media_type
            )
        return Response(await file.body(), headers=response_headers, media_type=file.media_type)

    def _find(self, path: str) -> _DashboardFile | None:
        """Return the file for a path, or None if the dashboard was not built; raise NotFound for an unknown asset."""
        self._update_listing()
        if path.startswith(_ASSETS) and path not in self._files:
            raise NotFound(f"there is nothing at {path[:200]}", "load the page again: the dashboard may be newer")
        return self._files.get(path) or self._files.get(_INDEX)

    def _update_listing(self) -> None:
        """List the folder at the first request and after each rebuild."""
        try:
            status = (self._folder / "index.html").stat()
        except OSError:
            self._files, self._build_stamp = {}, None
            return
        built = (status.st_mtime_ns, status.st_ino)
        if built != self._build_stamp:
            names = {f"/{file.relative_to(self._folder).as_posix()}": file for file in self._folder.rglob("*")}
            self._files = {
                name: _DashboardFile(file, lasting=name.startswith(_ASSETS))
                for name, file in names.items()
                if file.is_file()
            }
            self._build_stamp = built


def _accepts_gzip(headers: dict[bytes, bytes]) -> bool:
    """Return whether the client accepts gzip."""
    encodings = headers.get(b"accept-encoding", b"").lower().replace(b" ", b"").split(b",")
    return any(part.partition(b";")[0] == b"gzip" and not part.endswith(b"q=0") for part in encodings)
