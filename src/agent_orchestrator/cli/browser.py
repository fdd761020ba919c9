"""Open the dashboard in the browser, signed in by a login link that works once."""

from __future__ import annotations

import os
import sys
from typing import Any

from agent_orchestrator.cli import out
from agent_orchestrator.client.daemon_client import DaemonClient


def show_dashboard(ao: DaemonClient, *, should_open: bool) -> None:
    """Open the dashboard signed in, or print its login link if no browser can be opened."""
    link: dict[str, Any] = ao.post("/api/login-links")
    info = ao.info()
    opened = should_open and can_open_browser() and _open(link["url"])
    out.print_lines(
        address_lines(info) if opened else [f"dashboard {link['url']}", *_certificate_lines(info), *_login_hints(info)]
    )


def address_lines(info: dict[str, Any]) -> list[str]:
    """Return lines with the dashboard's address."""
    return [f"dashboard {info.get('url') or 'unknown'}", *_certificate_lines(info)]


def can_open_browser() -> bool:
    """Return whether a browser started here would be visible to the person."""
    if os.environ.get("SSH_CONNECTION") or os.environ.get("SSH_TTY"):
        return False
    has_display = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    return has_display or sys.platform in ("darwin", "win32")


def _certificate_lines(info: dict[str, Any]) -> list[str]:
    lines = [f"  {info['note']}"] if info.get("note") else []
    if info.get("fingerprint"):
        lines.append(f"  its certificate is its own, SHA-256 {info['fingerprint']}")
    return lines


def _login_hints(info: dict[str, Any]) -> list[str]:
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
