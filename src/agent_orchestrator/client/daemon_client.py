"""The daemon as a client sees it: found by `$AO_HOME/daemon.json`, started where none answers, asked over its Unix socket.

A request that the daemon died on is repeated with the same `Idempotency-Key`. Errors come back as the classes of `errors.py`.
Nothing heavy is imported here: every command waits for it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from agent_orchestrator.base.http_client import Answer, Broken, Connection, Stream, quote, unquote, with_query
from agent_orchestrator.errors import Unreachable

if TYPE_CHECKING:
    import subprocess

Result = TypeVar("Result")

ATTEMPTS = 4
"""A request, and three repetitions when the connection breaks on it."""

START_TIMEOUT = 60.0

_AGENTS_OWN = (
    "AO_SESSION",
    "AO_PROJECT",
    "AO_WORKSPACE",
    "AO_BRANCH",
    "AO_BASE",
    "AO_TASK_FILE",
    "AO_SPOOL",
    "AO_INBOX",
    "AO_URL",
    "AO_TOKEN",
    "AO_CHECK",
    "AO_RULE",
    "AO_TRIGGER",
    "AO_ATTEMPT",
    "AO_REACTION_FILE",
    "AO_REPEATED",
)
"""Variables of one session, check or reaction: a daemon that such a command starts must not take them for its own."""


class NotRunning(Unreachable):
    """No daemon answers."""

    def __init__(self) -> None:
        super().__init__("the daemon is not running", "start it with `ao start`")


def home_folder() -> str:
    """`$AO_HOME` or its default, by the rule of `home.Home`, without what that imports."""
    return os.path.abspath(os.path.expanduser(os.environ.get("AO_HOME") or "~/.agent-orchestrator"))


class Client:
    """One user's daemon."""

    def __init__(
        self,
        home: str | os.PathLike[str] | None = None,
        *,
        start: bool = True,
        notice: Callable[[str], None] | None = None,
        waiting: Callable[[str], None] | None = None,
    ) -> None:
        """`start`: start the daemon when it is needed; `notice` takes what it wants the person to know, `waiting` why it takes long."""
        self.home = home_folder() if home is None else os.path.abspath(home)
        self.start = start
        self._notice = notice
        self._noticed: set[str] = set()
        self._waiting = waiting
        self._connection: Connection | None = None
        self._log_size = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _confined(self) -> bool:
        """An agent's command in a sandbox: `$AO_HOME` is not to be seen there, its session's address and token are what it has."""
        named = os.environ.get("AO_SESSION") and os.environ.get("AO_URL") and os.environ.get("AO_TOKEN")
        return bool(named) and not os.path.exists(os.path.join(self.home, "daemon.lock"))

    @property
    def log(self) -> str:
        """Where the daemon's log is."""
        return os.path.join(self.home, "daemon.log")

    def info(self) -> dict[str, Any]:
        """What `$AO_HOME/daemon.json` says; empty if there is none."""
        try:
            with open(os.path.join(self.home, "daemon.json"), encoding="utf-8") as file:
                _check_owner(file.name, os.fstat(file.fileno()).st_uid)
                info = json.load(file)
        except (OSError, ValueError):
            return {"url": os.environ["AO_URL"]} if self._confined else {}
        return info if isinstance(info, dict) else {}

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = 60.0,
        check: bool = True,
        repeat: bool = True,
    ) -> Answer:
        """Ask and return the whole answer; one of 400 and above is raised as its error unless `check` is off."""
        payload = self._encode(method, path, body, headers)

        def ask() -> Answer:
            with self._send(payload, timeout) as stream:
                return Answer(stream.status, stream.headers, stream.read())

        answer = self._repeat(ask, timeout, repeat)
        if check and answer.status >= 400:
            raise answer.error()
        return answer

    def stream(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = 60.0,
        check: bool = True,
    ) -> Stream:
        """Ask and return the answer to be read as it comes; `timeout` is for its beginning."""
        payload = self._encode(method, path, body, headers)
        stream = self._repeat(lambda: self._send(payload, timeout), timeout, True)
        if check and stream.status >= 400:
            raise Answer(stream.status, stream.headers, stream.read()).error()
        stream.wait(None)
        return stream

    def get(
        self, path: str, query: Mapping[str, str | int | None] | None = None, *, timeout: float | None = 60.0
    ) -> Any:
        """GET a JSON document."""
        return self.request("GET", with_query(path, query), timeout=timeout).json()

    def post(self, path: str, body: object = None, *, timeout: float | None = 60.0) -> Any:
        """POST a JSON document and return the one that is answered."""
        return self.request("POST", path, {} if body is None else body, timeout=timeout).json()

    def close(self) -> None:
        """Hang up; the next request connects anew."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def ensure(self, arguments: Sequence[str] = ()) -> bool:
        """Make sure that the daemon answers; true if it had to be started, with these arguments."""
        try:
            self._release(self._connection or self._dial())
            return False
        except NotRunning:
            self._launch(arguments)
            return True

    # -- one exchange --------------------------------------------------------------------------------------------------

    def _encode(
        self, method: str, path: str, body: object, headers: Mapping[str, str] | None
    ) -> Callable[[Connection], bytes]:
        """The request's bytes; whom it goes to is known only when it is sent."""
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {"Accept": "application/json", "User-Agent": "ao"}
        if body is not None:
            fields["Content-Type"] = "application/json"
        if body is not None or method in ("POST", "PUT", "PATCH"):
            fields["Content-Length"] = str(len(content))
        if method in ("POST", "PUT", "PATCH", "DELETE"):
            fields["Idempotency-Key"] = os.urandom(16).hex()
        fields |= _here()
        if self._notice is not None and not os.environ.get("AO_SESSION"):
            fields["X-AO-Notices"] = "shown"  # to a person, who need not be told twice
        fields |= headers or {}

        def encode(connection: Connection) -> bytes:
            whom = (
                {"Host": connection.peer, "Authorization": f"Bearer {self._token()}"}
                if connection.peer
                else {"Host": "localhost"}
            )
            head = "".join(f"{name}: {value}\r\n" for name, value in (whom | fields).items())
            return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + content

        return encode

    def _send(self, payload: Callable[[Connection], bytes], timeout: float | None) -> Stream:
        connection, self._connection = self._connection, None
        if connection is None:
            try:
                connection = self._dial()
            except NotRunning:
                if not self.start or self._confined:
                    raise
                self._launch(())
                connection, self._connection = self._connection or self._dial(), None
        try:
            connection.sock.settimeout(timeout)
            connection.send(payload(connection))
            stream = Stream(connection, self._release)
        except BaseException:
            connection.close()
            raise
        if self._notice is not None and (notices := stream.headers.get("x-ao-notice")):
            for text in dict.fromkeys(notices.split(",")):
                if text not in self._noticed:
                    self._noticed.add(text)
                    self._notice(unquote(text.strip()))
        return stream

    def _repeat(self, ask: Callable[[], Result], timeout: float | None, repeat: bool) -> Result:
        for number in range(ATTEMPTS - 1 if repeat else 0):
            try:
                return self._in_time(ask, timeout)
            except Broken:
                self.close()
                time.sleep(0.1 * number)  # one that dies takes a moment, in which its socket still answers
        return self._in_time(ask, timeout)

    def _in_time(self, ask: Callable[[], Result], timeout: float | None) -> Result:
        try:
            return ask()
        except TimeoutError:
            self.close()
            raise Unreachable(f"the daemon did not answer within {timeout:g} s", f"see {self.log}") from None

    def _release(self, connection: Connection) -> None:
        if self._connection is None:
            self._connection = connection
        elif self._connection is not connection:
            connection.close()

    # -- finding and starting it ---------------------------------------------------------------------------------------

    def _dial(self) -> Connection:
        info = self.info()
        address = info.get("socket")
        try:
            if address and hasattr(socket, "AF_UNIX"):
                sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                connection = _connected(sock, str(address), "")
                try:
                    _check_owner(f"the daemon at {address}", _peer(sock))
                except Unreachable:
                    connection.close()
                    raise
                return connection
            if url := str(info.get("url") or ""):
                peer = url.partition("://")[2].rstrip("/")
                host, _, port = peer.rpartition(":")
                return _connected(socket.socket(socket.AF_INET), (host, int(port)), peer)
        except PermissionError:
            raise Unreachable(
                f"the daemon's socket {address} may not be opened", "is it another user's $AO_HOME?"
            ) from None
        except (OSError, ValueError):
            pass
        raise NotRunning

    def _token(self) -> str:
        try:
            with open(os.path.join(self.home, "token"), encoding="ascii") as file:
                return file.read().strip()
        except (OSError, ValueError):
            return os.environ["AO_TOKEN"] if self._confined else ""

    def _launch(self, arguments: Sequence[str]) -> None:
        """Start the daemon and wait until it answers. Of two that are started at once, one gives way to the other."""
        began = seen = time.monotonic()
        told, killed = False, 0
        child = self._spawn(arguments)
        while (now := time.monotonic()) < began + START_TIMEOUT:
            if self._answers():
                child.returncode = 0  # it lives on without us: no warning about that
                return
            if child.poll() is None:
                seen = now
            elif child.returncode and now > seen + 0.2 and not self._another():
                words, killed = self._last_words(child.returncode), killed + (child.returncode < 0)
                if killed == 3 or (child.returncode > 0 and "a daemon runs already" not in words):
                    raise Unreachable(f"the daemon could not start: {words}", self._look)
                child, seen = self._spawn(arguments), now  # it was killed, or the one it gave way to has died
            elif now > seen + 1.0:  # it gave way to one that was just leaving
                child, seen = self._spawn(arguments), now
            if not told and now > began + 1.0 and self._waiting is not None:
                self._waiting("starting the daemon…")
                told = True
            time.sleep(0.02)
        raise Unreachable(f"the daemon did not answer within {START_TIMEOUT:g} s of its start", self._look)

    @property
    def _look(self) -> str:
        return f"see {self.log}, or run `ao start --foreground`; where $AO_HOME is damaged, `ao doctor --repair`"

    def _another(self) -> bool:
        """Whether another daemon holds the lock: it is starting, or just ending."""
        try:
            with open(os.path.join(self.home, "daemon.lock"), encoding="ascii") as file:
                return alive(int(file.read()))
        except (OSError, ValueError):
            return False

    def _answers(self) -> bool:
        try:
            connection = self._dial()
        except Unreachable:
            return False
        try:
            connection.sock.settimeout(START_TIMEOUT)
            connection.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with Stream(connection, self._release) as stream:
                stream.read()
                return stream.status == 200
        except (Unreachable, TimeoutError):
            connection.close()
            return False

    def _spawn(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        import subprocess

        try:
            os.makedirs(self.home, mode=0o700, exist_ok=True)
            _check_owner(self.home, os.stat(self.home).st_uid)
            with open(self.log, "ab") as log:  # a crash too early for its own log is to be seen there as well
                self._log_size = log.tell()
                return subprocess.Popen(
                    [sys.executable, "-P", "-m", "agent_orchestrator.daemon", *arguments],
                    cwd=self.home,
                    env=self.daemon_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            raise Unreachable(
                f"the daemon could not be started: {error}", f"make {self.home} writable, or set AO_HOME"
            ) from None

    def daemon_environment(self) -> dict[str, str]:
        """The environment the daemon is to have when this process starts it."""
        env = {name: value for name, value in os.environ.items() if name not in _AGENTS_OWN}
        env["AO_HOME"] = self.home
        if env.get("AO_CONFIG"):
            env["AO_CONFIG"] = os.path.abspath(os.path.expanduser(env["AO_CONFIG"]))
        return env

    def _last_words(self, code: int) -> str:
        if code < 0:
            return f"it was killed by signal {-code}"
        try:
            with open(self.log, "rb") as log:
                log.seek(
                    self._log_size if self._log_size <= os.fstat(log.fileno()).st_size else 0
                )  # it was turned over
                lines = log.read().decode(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        said = [line for line in lines if line.startswith("ao: ")] or lines  # what it logs besides may come later
        return said[-1].removeprefix("ao: ") if said else f"it exited with {code}"


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and only waits to be reaped does not."""
    if os.name != "posix" or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:  # it ended this moment, or this system has no /proc
        return not os.path.isdir("/proc/self")
    except PermissionError:
        return True
    except OSError:
        return False


def _here() -> dict[str, str]:
    """Where the command runs: by that the daemon finds the project."""
    fields = {}
    try:
        fields["X-AO-Cwd"] = quote(os.getcwd())
    except OSError:  # the folder was removed under us
        pass
    if config := os.environ.get("AO_CONFIG"):
        fields["X-AO-Config"] = quote(os.path.abspath(os.path.expanduser(config)))
    if (token := os.environ.get("AO_TOKEN")) and os.environ.get("AO_SESSION"):
        fields["X-AO-Token"] = quote(token)  # an agent's own command says who it is
    return fields


def _check_owner(what: str, user: int) -> None:
    """Refuse to believe another user: what a daemon answers is run, by `ao attach` for one. Root can do all that anyway."""
    if os.name == "posix" and user not in (os.geteuid(), 0):
        raise Unreachable(
            f"{what} belongs to another user (number {user})",
            "set AO_HOME to a folder of your own, or run `ao` as that user",
        )


def _peer(sock: socket.socket) -> int:
    """The user at the other end of a Unix socket; where the system does not tell, whose folder it is in."""
    if hasattr(socket, "SO_PEERCRED"):
        told = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int.from_bytes(told[4:8], sys.byteorder)
    return os.stat(os.path.dirname(sock.getpeername())).st_uid


def _connected(sock: socket.socket, address: Any, peer: str) -> Connection:
    try:
        sock.settimeout(5.0)
        sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return Connection(sock, peer)
