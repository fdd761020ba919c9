"""The commands of the original product description, unchanged, on a repository called my-app with the demo agent."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Sandbox]:
    """Yield a repository without configuration, which `init` writes."""
    with Sandbox(tmp_path, "process") as box:
        box.repository("my-app")
        (box.repo / "agent-orchestrator.yaml").unlink()
        box.start()
        yield box


def test_the_getting_started_works_as_printed(app: Sandbox) -> None:
    assert "agent-orchestrator.yaml" in app.ao("init").stdout
    app.ao("config", "set", "defaults.agent", "demo")
    app.ao("config", "set", "defaults.runtime", "process")
    app.ao("create", "feature-a", "feature-b")
    app.ao("prompt", "feature-a", "Implement user authentication")
    app.ao("prompt", "feature-b", "Build user profile page")
    for name in ("feature-a", "feature-b"):
        app.wait_until(lambda name=name: app.session(name)["status"] == "review_pending", f"{name} to be done")  # type: ignore[misc]
    assert "feature-a" in app.ao("status").stdout
    app.ao("merge", "feature-a")
    assert app.session("feature-a")["status"] == "merged"
    assert "my-app-feature-a" in app.ao("status").stdout
    assert [
        line for line in app.git("log", "--format=%s").splitlines() if line.startswith("Implement user auth")
    ] or app.git("log", "--oneline")


def test_session_and_project_commands_work_as_printed(app: Sandbox) -> None:
    app.ao("init")
    app.ao("config", "set", "defaults.agent", "demo")
    app.ao("config", "set", "defaults.runtime", "process")
    app.ao("new", "Fix login validation bug", "--project", "my-app", "--issue", "123")
    assert "my-app-fix-login" in app.ao("list").stdout
    assert app.session("my-app-fix-login")["branch"] == "feature/issue-123"
    assert app.ao("status", "my-app-fix-login").stdout
    assert app.ao("logs", "my-app-fix-login").returncode == 0
    assert app.ao("attach", "my-app-fix-login", check=False).returncode == 2  # there is no terminal here
    app.ao("send", "my-app-fix-login", "Review the authentication flow in src/auth.ts")
    sent = app.ao("api", "POST", "/sessions/my-app-fix-login/message", "-d", '{"content":"Check the auth flow"}')
    assert json.loads(sent.stdout)["messageId"]
    assert "my-app-fix-login" in app.ao("stop", "my-app-fix-login").stdout
    app.ao("new", "Same task", "--project", "my-app", "--issue", "123")
    app.ao("stop", "--project", "my-app", "--all")
    assert all(session["status"] in ("stopped", "merged") for session in app.sessions())
    assert "defaults" in app.ao("config-help").stdout
    assert "compdef" in app.ao("completion", "zsh").stdout
    app.ao("remove-project", "my-app")
    app.ao("add-project", str(app.repo))


def test_the_http_api_works_over_tcp_with_a_token(app: Sandbox) -> None:
    app.ao("init")
    app.ao("config", "set", "defaults.agent", "demo")
    app.ao("config", "set", "defaults.runtime", "process")
    url, token = app.client().info()["url"], (app.home.path / "token").read_text().strip()

    def call(method: str, path: str, body: dict[str, str] | None = None) -> dict[str, object]:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(url + path, data, headers, method=method)) as answer:
            content: dict[str, object] = json.load(answer)
        return content

    call("POST", "/api/sessions", {"projectId": "my-app", "issue": "GH-789", "title": "Add user export feature"})
    session = "my-app-add-user-export-feature"
    assert call("GET", f"/api/sessions/{session}/status")["branch"] == "feature/issue-789"
    app.wait_until(lambda: call("GET", f"/api/sessions/{session}/status")["state"] != "working")
    assert call("POST", f"/api/sessions/{session}/message", {"content": "Export to CSV format"})["messageId"]
    call("DELETE", f"/api/sessions/{session}")
    assert call("GET", "/api/sessions")["sessions"]
