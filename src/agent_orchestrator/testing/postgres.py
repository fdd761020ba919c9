"""A private PostgreSQL server in a temporary folder, on its own port, for tests and benchmarks. It ends with its `with` block.

with Server() as server:
    url = server.database("ao")
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

_DEBIAN_FOLDER = Path("/usr/lib/postgresql")
DATABASE_USER, DATABASE_PASSWORD = "ao", "s3cret/of:them"


def find_programs() -> Path | None:
    """Return the folder with the programs of the newest server, or None if none is installed."""
    candidates = (
        sorted(_DEBIAN_FOLDER.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
        if _DEBIAN_FOLDER.is_dir()
        else []
    )
    if candidates:
        return candidates[-1].parent
    initdb = shutil.which("initdb")
    return Path(initdb).resolve().parent if initdb else None


class PostgresServer:
    """One server. Root runs it as the user `postgres`, because it refuses to run as root."""

    def __init__(self) -> None:
        folder = find_programs()
        if folder is None:
            raise FileNotFoundError("no PostgreSQL server is installed")
        self._programs = folder
        self.folder = Path(tempfile.mkdtemp(prefix="ao-postgres-"))
        self._run_as: dict[str, Any] = {}
        if os.getuid() == 0:
            self._run_as = {"user": "postgres", "group": "postgres", "extra_groups": []}
            shutil.chown(self.folder, "postgres", "postgres")
        self._data = self.folder / "data"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])

    def __enter__(self) -> PostgresServer:
        secret = self.folder / "password"
        secret.write_text(DATABASE_PASSWORD)
        secret.chmod(0o644)
        options = [
            "-U",
            DATABASE_USER,
            "-A",
            "scram-sha-256",
            "--pwfile",
            str(secret),
            "-E",
            "UTF8",
            "--locale",
            "C",
            "--no-sync",
        ]
        try:
            self._run("initdb", "-D", str(self._data), *options)
            self.start()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start the server and wait until it answers."""
        options = f"-c listen_addresses=127.0.0.1 -p {self.port} -k {self.folder}"
        log = str(self.folder / "log")
        self._run("pg_ctl", "-D", str(self._data), "-l", log, "-o", options, "-w", "-t", "30", "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server; mode `immediate` is like a crash."""
        self._run("pg_ctl", "-D", str(self._data), "-m", mode, "-w", "-t", "30", "stop")

    def url(self, name: str, *, password: str = DATABASE_PASSWORD) -> str:
        """Return the URL of a database."""
        from urllib.parse import quote

        return f"postgresql://{DATABASE_USER}:{quote(password, safe='')}@127.0.0.1:{self.port}/{name}"

    def database(self, name: str) -> str:
        """Create an empty database and return its URL."""
        self.sql(f'CREATE DATABASE "{name}"', "postgres")
        return self.url(name)

    def sql(self, statement: str, database: str) -> list[tuple[Any, ...]]:
        """Run a statement on a new connection and return its rows."""
        import psycopg

        end = time.monotonic() + 10.0
        while True:
            try:
                with psycopg.connect(self.url(database), autocommit=True) as connection:
                    cursor = connection.execute(statement.encode())
                    return list(cursor.fetchall()) if cursor.description else []
            except psycopg.OperationalError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def _run(self, program: str, *argv: str) -> None:
        command = [str(self._programs / program), *argv]
        # To a file: the server keeps its standard output open, so a pipe would never end.
        with (self.folder / "output").open("ab") as output:
            completed = subprocess.run(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=120,
                **self._run_as,
            )
        if completed.returncode:
            output_lines = (self.folder / "output").read_text(errors="replace").strip().splitlines()[-5:]
            raise OSError(f"{program} failed: {' / '.join(output_lines)}")
