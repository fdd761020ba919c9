"""`GitHubServer`: a GitHub on loopback with real HTTP and Git. See `GitHubPeople` for the actions that tests use."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType

from agent_orchestrator.testing.forge.ledger import Ledger, OrderedFault
from agent_orchestrator.testing.github import merges
from agent_orchestrator.testing.github.graphql.endpoint import GitHubGraphQL
from agent_orchestrator.testing.github.http import GitHubListener
from agent_orchestrator.testing.github.people import GitHubPeople
from agent_orchestrator.testing.github.state import GitHubRateLimit, Repo
from agent_orchestrator.testing.github.world import GitHubWorld

SCHEMA_VARIABLE = "AO_GITHUB_SCHEMA"


class GitHubServer(GitHubPeople):
    """Start it with `with GitHubServer() as forge:`.

    REST is served at `forge.url` and at `forge.url + "/api/v3"`, GraphQL at `/graphql` and `/api/graphql` (with the published
    schema, named by `schema` or by $AO_GITHUB_SCHEMA), Git at `forge.git_url("owner/name")`.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.time, schema: Path | str | None = None, port: int = 0
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ao-github-"))
        (self.folder / "git").mkdir()
        world = GitHubWorld(self.folder / "git", clock)
        world.merge_ready = partial(merges.merge_ready, world)
        super().__init__(world)
        schema_path = schema or os.environ.get(SCHEMA_VARIABLE)
        self.graphql = GitHubGraphQL(world, Path(schema_path) if schema_path else None)
        self.ledger = Ledger()
        self.anonymous: dict[str, GitHubRateLimit] = {}
        self._listeners = [GitHubListener(("127.0.0.1", port), self)]
        self.port = self._listeners[0].server_address[1]
        self.url = world.url = f"http://127.0.0.1:{self.port}"
        self.hooks = world.hooks

    def __enter__(self) -> GitHubServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if error is None and self.world.errors:
            raise self.world.errors[0]

    def start(self) -> None:
        self.hooks.start()
        self._serve(self._listeners[0])

    def _serve(self, listener: GitHubListener) -> None:
        threading.Thread(target=listener.serve_forever, args=(0.05,), name="github", daemon=True).start()

    def stop(self) -> None:
        self.down()
        self.hooks.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def down(self) -> None:
        """Stop listening and end open connections; the state is kept."""
        for listener in self._listeners:
            listener.end()
        self._listeners.clear()

    def up(self) -> None:
        """Listen again at the same address."""
        self._listeners.append(GitHubListener(("127.0.0.1", self.port), self))
        self._serve(self._listeners[-1])

    def git_url(self, repo: Repo | str) -> str:
        return f"{self.url}/{repo if isinstance(repo, str) else repo.full_name}.git"

    def serve_tls(self, address: str = "127.0.0.2", port: int = 443) -> Path:
        """Listen for TLS too, with a self-signed certificate for this address, as `gh` requires; return the certificate's path."""
        key, cert = self.folder / "key.pem", self.folder / "cert.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={address}", "-addext",
             f"subjectAltName=IP:{address}", "-keyout", str(key), "-out", str(cert)],
            check=True, capture_output=True,
        )  # fmt: skip
        listener = GitHubListener((address, port), self)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        listener.socket = context.wrap_socket(listener.socket, server_side=True, do_handshake_on_connect=False)
        listener.secure = True
        self._listeners.append(listener)
        self._serve(listener)
        return cert

    def fail(
        self, what: int | str, *, next: int = 1, path: str = "", method: str = "", retry_after: int | None = None,  # noqa: A002
        seconds: float = 0.0, field: str = "", reset: float | None = None, login: str = "",
    ) -> OrderedFault:  # fmt: skip
        """Make the next requests fail; with `path` (a regular expression), `method` or `login` only those.

        `what` is a status (401, 404, 500, 502 …), or: `secondary` (403 with Retry-After), `rate` (the rate limit is used up until `reset`),
        `cut` (the connection ends in the middle of the answer), `drop` (it ends without one), `slow` (answered after `seconds`),
        `html` (a proxy's page with 502), `partial` (GraphQL: `field` is null, with an error beside the data).
        """
        fault = OrderedFault(what, next, path, method, retry_after, seconds, field, reset, login)
        self.ledger.faults.append(fault)
        return fault

    def clear_faults(self) -> None:
        """Remove all faults."""
        self.ledger.faults.clear()

    def set_rate(
        self, token: str, *, remaining: int, reset: float | None = None, kind: str = "core", limit: int = 5000
    ) -> None:
        """Set a token's rate limit; `reset` may be in the past."""
        frozen = reset is not None and reset <= self.world.clock()
        at = reset if reset is not None else self.world.clock() + 3600
        self.world.tokens[token].limits[kind] = GitHubRateLimit(limit, limit - remaining, at, frozen)
