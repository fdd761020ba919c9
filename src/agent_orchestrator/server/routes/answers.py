"""Routes for the page behind a notification's link. Opening it changes nothing: it shows what would be answered, and a button.

No token is needed: the address contains a word signed by the daemon, valid for one request, once.
"""

from __future__ import annotations

from html import escape
from typing import Annotated

from fastapi import Path, Request, Response

from agent_orchestrator.errors import AoError
from agent_orchestrator.server.dependencies import TheServices
from agent_orchestrator.server.schema.openapi import as_json, responds_with, responds_with_text, router_for

router = router_for("answers")

Token = Annotated[str, Path(description="What the link ends with.")]

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",  # with "no-referrer" a browser calls the page's own origin null, which is refused
    "X-Robots-Tag": "noindex",
    "Cache-Control": "no-store",
}
_PAGE = """\
<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:42rem;margin:3rem auto;padding:0 1rem}}
pre{{white-space:pre-wrap;overflow-wrap:anywhere;padding:1rem;border:1px solid #8888;border-radius:.5rem}}
button{{font:inherit;padding:.5rem 1.5rem;border-radius:.5rem;border:1px solid #8888;cursor:pointer}}</style></head>
<body><main><h1>{title}</h1>{body}</main></body>
</html>
"""


@router.get("/answer/{token}", responses=responds_with_text("A page", "text/html"))
async def show_answer(services: TheServices, token: Token) -> Response:
    """Show what a notification's link would answer, as a page with a button that does; needs no token, and changes nothing."""
    try:
        offer = services.answers.preview(token)
    except AoError as error:
        return _page("It cannot be answered here", f"<p>{escape(str(error))}</p>", error.http_status)
    button = f'<form method="post"><button>{escape(offer.title)}</button></form>'
    note = f"<p>{escape(offer.note)}</p>" if offer.note else ""
    return _page(offer.title, f"<pre>{escape(offer.text)}</pre>{note}{button}")


@router.post("/answer/{token}", responses=responds_with("Answered"))
async def give_answer(request: Request, services: TheServices, token: Token) -> Response:
    """Give the answer that a notification's link stands for, once; needs no token. A browser gets a page."""
    is_browser = "text/html" in request.headers.get("accept", "")
    try:
        result = await services.answers.answer(token)
    except AoError as error:
        if not is_browser:
            raise
        return _page("Nothing was done", f"<p>{escape(str(error))}</p>", error.http_status)
    return (
        _page("Done", f"<p>{escape(result['verb'])}: {escape(result['session'])}</p>")
        if is_browser
        else as_json(result)
    )


def _page(title: str, body: str, status: int = 200) -> Response:
    """Return a page with this title and HTML body."""
    return Response(_PAGE.format(title=escape(title), body=body), status, _HEADERS, "text/html; charset=utf-8")
