"""The address of a PostgreSQL database: its URL as libpq reads it, and as it is shown, without the password."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from agent_orchestrator.errors import AoError, ConfigError, Denied, Missing, NotFound, Temporary

MIN_VERSION = 13
"""The oldest supported version of PostgreSQL."""

_CONNECTION_DEFAULTS: Mapping[str, Any] = {
    "connect_timeout": 5,
    # A vanished server is noticed, both on an idle connection and during a statement.
    "keepalives": 1,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 4,
    "tcp_user_timeout": 6000,
}
"""Connection parameters that apply unless the URL sets them."""
_URL_HINT = "write postgresql://user:password@host:5432/name, special characters as %40, %3A …"
"""Remedy for a URL that cannot be parsed."""
_TEMPORARY_CODES = ("08", "40", "53", "57", "55P03", "25006")
"""Prefixes of codes of temporary errors: no connection, a conflict, no space, shutting down, locked, a replica."""


class Address:
    """The address of a database. Its text form shows no password."""

    def __init__(self, url: str) -> None:
        """Parse a URL, and raise `ConfigError` if it is not that of a PostgreSQL database."""
        try:
            parameters = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
        except psycopg.Error:  # its text may quote the password
            raise ConfigError("database: this is no URL of a PostgreSQL database", _URL_HINT) from None
        if not parameters.get("port", "0").replace(",", "").isdigit():
            raise ConfigError("database: the port is no number", _URL_HINT)
        if "@" in parameters.get("host", ""):
            raise ConfigError("database: there are two @ in the URL", _URL_HINT)
        self._parameters = parameters
        self._password = parameters.get("password", "")

    def __repr__(self) -> str:
        return f"Address({self})"

    def __str__(self) -> str:
        user, name = self._parameters.get("user", ""), self._parameters.get("dbname", "")
        login = f"{user}:***@" if user and self._password else f"{user}@" if user else ""
        return f"postgresql://{login}{self.server}/{name}"

    @property
    def server(self) -> str:
        """The host and port, or the folder of the server's socket."""
        host, port = (
            self._parameters.get("host") or self._parameters.get("hostaddr") or "localhost",
            self._parameters.get("port"),
        )
        return f"{host}:{port}" if port and not host.startswith("/") else host

    def connect(self, application: str, *, autocommit: bool = False) -> psycopg.Connection[Any]:
        """Return a new connection, or raise `Missing` if the server is too old."""
        options: dict[str, Any] = {**_CONNECTION_DEFAULTS, **self._parameters, "application_name": application}
        connection = psycopg.connect(**options, autocommit=autocommit)
        if connection.info.server_version < MIN_VERSION * 10000:
            version = connection.info.parameter_status("server_version")
            connection.close()
            raise Missing(
                f"PostgreSQL at {self.server} is {version}",
                f"PostgreSQL {MIN_VERSION} or newer is needed: upgrade the server",
            )
        return connection

    def to_error(self, error: BaseException | None) -> AoError:
        """Return the error that a driver's error means, with a text on one line and without the password."""
        code = getattr(error, "sqlstate", None) or ""
        text = self._first_line_without_password(str(error))
        user, name = self._parameters.get("user", ""), self._parameters.get("dbname", "")
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
        is_connection_lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not code
        if is_connection_lost or code.startswith(_TEMPORARY_CODES):
            return Temporary(
                f"the database {self} cannot be used: {text}", f"see whether PostgreSQL runs at {self.server}"
            )
        return AoError(
            f"the database {self} is not as it should be: {text}", "see the server's log, or restore a backup"
        )

    def _first_line_without_password(self, text: str) -> str:
        """Return the first line of a text, with the password replaced."""
        line = next((candidate.strip() for candidate in text.splitlines() if candidate.strip()), "no reason given")
        for secret in {self._password, quote(self._password, safe="")} - {""}:
            line = line.replace(secret, "***")
        return line
