"""Where a PostgreSQL database is: its URL as libpq reads it, and how it is shown. The password stays in here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from agent_orchestrator.errors import AoError, ConfigError, Denied, Missing, NotFound, Temporary

OLDEST = 13
"""The oldest PostgreSQL that this works with."""

_DEFAULTS: Mapping[str, Any] = {
    "connect_timeout": 5,
    # A server that vanished is noticed: when nothing is under way, and when something is.
    "keepalives": 1,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 4,
    "tcp_user_timeout": 6000,
}
_FORM = "write postgresql://user:password@host:5432/name, special characters as %40, %3A …"
_NOW_AND_THEN = ("08", "40", "53", "57", "55P03", "25006")
"""Beginnings of error codes that say: not now. No connection, a conflict, no room, shutting down, locked, a replica."""


class Address:
    """A database, and the ways to name it."""

    def __init__(self, url: str) -> None:
        try:
            given = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
        except psycopg.Error:  # its text may quote the password
            raise ConfigError("database: this is no URL of a PostgreSQL database", _FORM) from None
        if not given.get("port", "0").replace(",", "").isdigit():
            raise ConfigError("database: the port is no number", _FORM)
        if "@" in given.get("host", ""):
            raise ConfigError("database: there are two @ in the URL", _FORM)
        self._given = given
        self._password = given.get("password", "")

    def __repr__(self) -> str:
        return f"Address({self})"

    def __str__(self) -> str:
        user, name = self._given.get("user", ""), self._given.get("dbname", "")
        who = f"{user}:***@" if user and self._password else f"{user}@" if user else ""
        return f"postgresql://{who}{self.server}/{name}"

    @property
    def server(self) -> str:
        """The machine, or the folder of its socket."""
        host, port = self._given.get("host") or self._given.get("hostaddr") or "localhost", self._given.get("port")
        return f"{host}:{port}" if port and not host.startswith("/") else host

    def connect(self, application: str, *, autocommit: bool = False) -> psycopg.Connection[Any]:
        """A new connection; the server is new enough."""
        options: dict[str, Any] = {**_DEFAULTS, **self._given, "application_name": application}
        made = psycopg.connect(**options, autocommit=autocommit)
        if made.info.server_version < OLDEST * 10000:
            found = made.info.parameter_status("server_version")
            made.close()
            raise Missing(
                f"PostgreSQL at {self.server} is {found}", f"PostgreSQL {OLDEST} or newer is needed: upgrade the server"
            )
        return made

    def explained(self, error: BaseException | None) -> AoError:
        """What an error of the driver means, on one line and without the password."""
        code = getattr(error, "sqlstate", None) or ""
        text = self._clean(str(error))
        user, name = self._given.get("user", ""), self._given.get("dbname", "")
        match code:
            case "28P01" | "28000":
                return Denied(f"{self} lets us not in: {text}", "correct user and password under database:")
            case "3D000":
                return NotFound(f"there is no database {name} at {self.server}", f"make it: createdb {name}")
            case "42501":
                return Denied(
                    f"{self}: {text}", f"let {user or 'the user'} own the database: ALTER DATABASE {name} OWNER TO …"
                )
        if "password authentication failed" in text or "no password supplied" in text:
            return Denied(f"{self} lets us not in: {text}", "correct user and password under database:")
        if f'database "{name}" does not exist' in text:
            return NotFound(f"there is no database {name} at {self.server}", f"make it: createdb {name}")
        lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not code
        if lost or code.startswith(_NOW_AND_THEN):
            return Temporary(
                f"the database {self} cannot be used: {text}", f"see whether PostgreSQL runs at {self.server}"
            )
        return AoError(
            f"the database {self} is not as it should be: {text}", "see the server's log, or restore a backup"
        )

    def _clean(self, text: str) -> str:
        line = next((one.strip() for one in text.splitlines() if one.strip()), "no reason given")
        for secret in {self._password, quote(self._password, safe="")} - {""}:
            line = line.replace(secret, "***")
        return line
