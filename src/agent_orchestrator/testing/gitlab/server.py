"""`GitLabServer`: a GitLab on loopback with real HTTP and Git. See `GitLabPeople` for the actions that tests use."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from agent_orchestrator.testing.forge.ledger import Ledger, OrderedFault
from agent_orchestrator.testing.gitlab.http import GitLabListener
from agent_orchestrator.testing.gitlab.people import GitLabPeople
from agent_orchestrator.testing.gitlab.state import GitLabProject
from agent_orchestrator.testing.gitlab.world import GitLabWorld


class GitLabServer(GitLabPeople):
    """Start it with `with GitLabServer() as forge:`. REST is served at `forge.url + "/api/v4"`, Git at `forge.git_url(project)`."""

    def __init__(self, *, clock: Callable[[], float] = time.time, port: int = 0) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ao-gitlab-"))
        (self.folder / "git").mkdir()
        super().__init__(GitLabWorld(self.folder / "git", clock))
        self.ledger = Ledger()
        self._listeners = [GitLabListener(("127.0.0.1", port), self)]
        self.port = self._listeners[0].server_address[1]
        self.url = self.world.url = f"http://127.0.0.1:{self.port}"
        self.hooks = self.world.hooks

    def __enter__(self) -> GitLabServer:
        self.hooks.start()
        self._serve(self._listeners[0])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()
        self.hooks.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        if error is None and self.world.errors:
            raise self.world.errors[0]

    def _serve(self, listener: GitLabListener) -> None:
        threading.Thread(target=listener.serve_forever, args=(0.05,), name="gitlab", daemon=True).start()

    def down(self) -> None:
        """Stop listening and end open connections; the state is kept."""
        for listener in self._listeners:
            listener.end()
        self._listeners.clear()

    def up(self) -> None:
        """Listen again at the same address."""
        self._listeners.append(GitLabListener(("127.0.0.1", self.port), self))
        self._serve(self._listeners[-1])

    def git_url(self, project: GitLabProject | str) -> str:
        return f"{self.url}/{project if isinstance(project, str) else project.full_name}.git"

    def fail(
        self, what: int | str, *, next: int = 1, path: str = "", method: str = "", retry_after: int | None = None,  # noqa: A002
        seconds: float = 0.0, reset: float | None = None, login: str = "",
    ) -> OrderedFault:  # fmt: skip
        """Make the next requests fail; with `path` (a regular expression), `method` or `login` only those.

        `what` is a status, or: `rate` (the rate limit is used up until `reset`), `cut` (the connection ends in the middle of the answer),
        `drop` (it ends without one), `slow` (answered after `seconds`), `html` (a proxy's page with 502).
        """
        fault = OrderedFault(what, next, path, method, retry_after, seconds, "", reset, login)
        self.ledger.faults.append(fault)
        return fault

    def set_rate(self, token: str, *, remaining: int, reset: float | None = None, limit: int = 2000) -> None:
        """Set a person's rate limit."""
        user = self.world.tokens[token].user
        user.limit, user.used = limit, limit - remaining
        user.reset = reset if reset is not None else self.world.clock() + 60
        user.frozen = user.reset <= self.world.clock()
