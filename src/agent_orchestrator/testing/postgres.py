"""A PostgreSQL server of one's own, in a temporary folder, on its own port: for tests and benchmarks. Ends with its `with`.

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

_DEBIAN = Path("/usr/lib/postgresql")
USER, PASSWORD = "ao", "s3cret/of:them"


def programs() -> Path | None:
    """The folder of the newest server's programs; none if there is no server here."""
    found = sorted(_DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3])) if _DEBIAN.is_dir() else []
    if found:
        return found[-1].parent
    here = shutil.which("initdb")
    return Path(here).resolve().parent if here else None


class Server:
    """One server. Root starts it as the user `postgres`, for it refuses to run as root."""

    def __init__(self) -> None:
        found = programs()
        if found is None:
            raise FileNotFoundError("no PostgreSQL server is installed")
        self._programs = found
        self.folder = Path(tempfile.mkdtemp(prefix="ao-postgres-"))
        self._as: dict[str, Any] = {}
        if os.getuid() == 0:
            self._as = {"user": "postgres", "group": "postgres", "extra_groups": []}
            shutil.chown(self.folder, "postgres", "postgres")
        self._data = self.folder / "data"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])

    def __enter__(self) -> Server:
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        options = [
            "-U",
            USER,
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
        """Start it, and wait until it answers."""
        options = f"-c listen_addresses=127.0.0.1 -p {self.port} -k {self.folder}"
        log = str(self.folder / "log")
        self._run("pg_ctl", "-D", str(self._data), "-l", log, "-o", options, "-w", "-t", "30", "start")

    def stop(self, mode: str = "fast") -> None:
        """End it; `immediate` is as a crash."""
        self._run("pg_ctl", "-D", str(self._data), "-m", mode, "-w", "-t", "30", "stop")

    def url(self, name: str, *, password: str = PASSWORD) -> str:
        """A database's address."""
        from urllib.parse import quote

        return f"postgresql://{USER}:{quote(password, safe='')}@127.0.0.1:{self.port}/{name}"

    def database(self, name: str) -> str:
        """A new and empty database; returns its address."""
        self.sql(f'CREATE DATABASE "{name}"', "postgres")
        return self.url(name)

    def sql(self, statement: str, database: str) -> list[tuple[Any, ...]]:
        """Run a statement beside everybody else; returns its rows."""
        import psycopg

        end = time.monotonic() + 10.0
        while True:
            try:
                with psycopg.connect(self.url(database), autocommit=True) as link:
                    done = link.execute(statement.encode())
                    return list(done.fetchall()) if done.description else []
            except psycopg.OperationalError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def _run(self, program: str, *argv: str) -> None:
        command = [str(self._programs / program), *argv]
        # To a file: the server keeps what it was started with open, and nobody would see a pipe's end.
        with (self.folder / "output").open("ab") as output:
            done = subprocess.run(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=120,
                **self._as,
            )
        if done.returncode:
            said = (self.folder / "output").read_text(errors="replace").strip().splitlines()[-5:]
            raise OSError(f"{program} failed: {' / '.join(said)}")
