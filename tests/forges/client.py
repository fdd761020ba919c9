"""An HTTP client of the test forge, for tests of the forge itself."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass, field
from typing import Any

from agent_orchestrator.testing.github import GitHubServer
from agent_orchestrator.testing.gitlab import GitLabServer


@dataclass
class ForgeClient:
    """A signed-in client that records every response."""

    forge: GitHubServer | GitLabServer
    token: str
    answers: list[tuple[str, str, int, Any]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        status, payload = self.ask(method, path, body, **headers)
        assert status < 400, f"{method} {path}: {status} {payload}"
        return payload

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.forge.port, timeout=60)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Authorization": f"Bearer {self.token}", **headers})
            response = connection.getresponse()
            raw = response.read()
        finally:
            connection.close()
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        payload = json.loads(raw) if raw and "json" in self.headers.get("content-type", "") else raw or None
        self.answers.append((method, path.split("?")[0], response.status, payload))
        return response.status, payload

    def graphql(self, query: str, **variables: Any) -> Any:
        return self("POST", "/graphql", {"query": query, "variables": variables})
