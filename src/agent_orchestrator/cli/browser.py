"""The dashboard in the person's browser, signed in by a link that is good once."""

from __future__ import annotations

import os
import sys
from typing import Any

from agent_orchestrator.cli import out
from agent_orchestrator.client.daemon_client import Client


def show_dashboard(ao: Client, *, opening: bool) -> None:
    """Open the dashboard signed in; where no browser can be opened, say how to get there."""
    link: dict[str, Any] = ao.post("/api/login-links")
    info = ao.info()
    opened = opening and browser_here() and _open(link["url"])
    out.show(where(info) if opened else [f"dashboard {link['url']}", *_more(info), *_by_hand(info)])


def where(info: dict[str, Any]) -> list[str]:
    """Where the dashboard is."""
    return [f"dashboard {info.get('url') or 'unknown'}", *_more(info)]


def browser_here() -> bool:
    """Whether a browser started here is one that the person sees."""
    if os.environ.get("SSH_CONNECTION") or os.environ.get("SSH_TTY"):
        return False
    shown = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    return shown or sys.platform in ("darwin", "win32")


def _more(info: dict[str, Any]) -> list[str]:
    lines = [f"  {info['note']}"] if info.get("note") else []
    if info.get("fingerprint"):
        lines.append(f"  its certificate is its own, SHA-256 {info['fingerprint']}")
    return lines


def _by_hand(info: dict[str, Any]) -> list[str]:
    lines = ["  signs in the browser that opens it first, within 2 minutes; `ao dashboard` gives another"]
    host, _, port = str(info.get("url") or "").partition("://")[2].rpartition(":")
    if os.environ.get("SSH_CONNECTION") and host in ("127.0.0.1", "localhost", "[::1]"):
        lines.append(f"  from your own machine, first: ssh -L {port}:{host}:{port} THIS_MACHINE")
    return lines


def _open(url: str) -> bool:
    import webbrowser

    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False
