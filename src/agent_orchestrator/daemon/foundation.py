"""`Foundation`: what exists before the configuration is loaded: the home, the store with its writer, this machine, the projects."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING

from agent_orchestrator.base.api_tokens import Tokens
from agent_orchestrator.base.clock import SystemClock
from agent_orchestrator.base.files.safe import UnsafePath, read_regular_file
from agent_orchestrator.base.files.watch import FileWatcher
from agent_orchestrator.base.home import Home
from agent_orchestrator.config.config_set import ConfigSet, DaemonConfig
from agent_orchestrator.config.learned_secrets import learn_environment
from agent_orchestrator.config.load import MAX_CONFIG_BYTES
from agent_orchestrator.config.projects.projects import Projects
from agent_orchestrator.config.projects.trusted_files import TrustedFiles
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.facts import Facts
from agent_orchestrator.core.store.database import Database
from agent_orchestrator.errors import AoError, Missing
from agent_orchestrator.sessions.isolation.sandbox import SandboxedGitHost
from agent_orchestrator.sessions.site import LocalSite

if TYPE_CHECKING:
    from agent_orchestrator.core.store.postgres import Postgres


class Foundation:
    """What all parts of a daemon are built on."""

    def __init__(self, home: Home, config_file: Path | None = None, *, foreign: bool = False) -> None:
        """Create everything; nothing is started. `foreign`: the configuration file came with a repository."""
        self.home = home
        learn_environment(os.environ)
        facts = Facts()
        trusted_files = TrustedFiles(facts, home, foreign=foreign)
        self.config = ConfigSet(home.config, os.environ, config_file, trust=trusted_files, foreign=foreign)
        self.preloaded_settings = load_early_settings(self.config)
        """The daemon's settings, if a file sets the database and they had to be read before the store is opened; else None."""
        self.shared_store = (
            open_shared_store(home, self.preloaded_settings.database) if self.preloaded_settings else None
        )
        """The store, if it is one that other daemons can use too; else None."""
        self.clock = SystemClock()
        here = self.shared_store.own_daemon.home_name if self.shared_store else ""
        store = self.shared_store or Database.sqlite(home.database)
        self.flow = Flow(store, self.clock, self.config.rules, self.config.routes, facts, here)
        self.host = SandboxedGitHost(self.config, facts, hidden=(home.path, home.socket("x").parent))
        self.watch = FileWatcher()
        self.projects = Projects(self.flow, home, self.host, self.config, trusted_files, self.watch)
        self.local_site = LocalSite(home, self.host)
        self.tokens = Tokens(home)


def load_early_settings(config: ConfigSet) -> DaemonConfig | None:
    """Return the daemon's settings if a file may set the database, else None. Raises an error for such a file that is invalid.

    Without that file the daemon would open another database, which has none of the sessions.
    """
    files = [path for path in config.own_files if path and path.is_file()]
    relevant = [path for path in files if _may_set_database(path)]
    for path in files if relevant else ():
        try:
            config.load_home() if path == config.own_files[0] else config.add(path)
        except AoError:
            if path in relevant:
                raise
    return config.daemon if relevant else None


def _may_set_database(path: Path) -> bool:
    """Return whether a configuration file mentions a database."""
    try:
        return b"database" in read_regular_file(path.resolve(), MAX_CONFIG_BYTES)
    except UnsafePath:
        return True  # too long to be valid: loading it raises the error


def open_shared_store(home: Home, database: str) -> Postgres | None:
    """Return the store at a PostgreSQL server, if the setting names one."""
    if "://" not in database:
        return None
    machine = ""
    try:
        from agent_orchestrator.core.store.leader import DaemonDescription
        from agent_orchestrator.core.store.postgres import Postgres
    except ImportError:
        raise Missing(
            "database: psycopg, which speaks to PostgreSQL, is not installed",
            "pip install 'agent-orchestrator[postgres]'",
        ) from None
    with contextlib.suppress(OSError):
        machine = Path("/etc/machine-id").read_text().strip()[:8]
    name = platform.node() or "localhost"
    return Postgres(database, DaemonDescription(name, str(home.path), os.getpid(), time.time(), machine=machine))
