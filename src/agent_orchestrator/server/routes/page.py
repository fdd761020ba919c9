"""The page at `/`: says that the daemon runs, and how to go on."""

from __future__ import annotations

from importlib import resources

from fastapi import APIRouter, Response

from agent_orchestrator import __version__

router = APIRouter(include_in_schema=False)

_FILES = resources.files("agent_orchestrator.server") / "static"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
}


@router.get("/")
async def page() -> Response:
    """A small page for people who open the address in a browser."""
    html = (_FILES / "index.html").read_text().replace("{{version}}", __version__)
    return Response(html, headers=_HEADERS, media_type="text/html")


@router.get("/static/style.css")
async def style() -> Response:
    """How the page looks."""
    return Response((_FILES / "style.css").read_text(), headers=_HEADERS, media_type="text/css")
