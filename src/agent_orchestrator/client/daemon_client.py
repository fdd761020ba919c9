"""The client of the daemon: finds it through `$AO_HOME/daemon.json`, starts it if it does not answer, sends requests to its Unix
socket.

A request during which the daemon died is repeated with the same `Idempotency-Key`. Errors are raised as the classes of `errors.py`.
Import nothing heavy here: every command waits for it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from agent_orchestrator.base.http_client import (
    BufferedSocket,
    CompleteResponse,
    ConnectionBroken,
    StreamedResponse,
    quote,
    unquote,
    with_query,
)
from agent_orchestrator.errors import Unreachable

if TYPE_CHECKING:
    import subprocess

Result = TypeVar("Result")

MAX_ATTEMPTS = 4
"""How often a request is sent at most: once, and three repetitions if the connection breaks."""

START_TIMEOUT = 60.0

_SESSION_VARIABLES = (
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
"""Variables of one session, check or reaction; not passed on to a daemon that such a command starts."""


class NotRunning(Unreachable):
    """No daemon answers."""

    def __init__(self) -> None:
        super().__init__("the daemon is not running", "start it with `ao start`")


def home_folder() -> str:
    """Return `$AO_HOME` or its default, as `home.Home` does, without importing what that needs."""
    return os.path.abspath(os.path.expanduser(os.environ.get("AO_HOME") or "~/.agent-orchestrator"))


class DaemonClient:
    """A client of one user's daemon."""

    def __init__(
        self,
        home: str | os.PathLike[str] | None = None,
        *,
        start: bool = True,
        notice: Callable[[str], None] | None = None,
        waiting: Callable[[str], None] | None = None,
    ) -> None:
        """`start`: start the daemon if needed; `notice` is called with texts the person should read, `waiting` with the reason for a
        delay.
        """
        self.home = home_folder() if home is None else os.path.abspath(home)
        self.start = start
        self._notice = notice
        self._shown_notices: set[str] = set()
        self._waiting = waiting
        self._connection: BufferedSocket | None = None
        self._log_size = 0

    def __enter__(self) -> DaemonClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _is_confined(self) -> bool:
        """Whether this is an agent's command in a sandbox: `$AO_HOME` is not visible there, only the session's URL and token."""
        has_session = os.environ.get("AO_SESSION") and os.environ.get("AO_URL") and os.environ.get("AO_TOKEN")
        return bool(has_session) and not os.path.exists(os.path.join(self.home, "daemon.lock"))

    @property
    def log_path(self) -> str:
        """The path of the daemon's log."""
        return os.path.join(self.home, "daemon.log")

    def info(self) -> dict[str, Any]:
        """Return the contents of `$AO_HOME/daemon.json`, or an empty dictionary if there is none."""
        try:
            with open(os.path.join(self.home, "daemon.json"), encoding="utf-8") as file:
                _check_owner(file.name, os.fstat(file.fileno()).st_uid)
                info = json.load(file)
        except (OSError, ValueError):
            return {"url": os.environ["AO_URL"]} if self._is_confined else {}
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
    ) -> CompleteResponse:
        """Send a request and return the whole answer; raise the error of a status of 400 and above unless `check` is off."""
        payload = self._encode(method, path, body, headers)

        def send() -> CompleteResponse:
            with self._send(payload, timeout) as stream:
                return CompleteResponse(stream.status, stream.headers, stream.read())

        answer = self._repeat(send, timeout, repeat)
        if check and answer.status >= 400:
            raise answer.to_error()
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
    ) -> StreamedResponse:
        """Send a request and return the answer as a stream; `timeout` applies until its first byte."""
        payload = self._encode(method, path, body, headers)
        stream = self._repeat(lambda: self._send(payload, timeout), timeout, True)
        if check and stream.status >= 400:
            raise CompleteResponse(stream.status, stream.headers, stream.read()).to_error()
        stream.set_timeout(None)
        return stream

    def get(
        self, path: str, query: Mapping[str, str | int | None] | None = None, *, timeout: float | None = 60.0
    ) -> Any:
        """GET a JSON document."""
        return self.request("GET", with_query(path, query), timeout=timeout).json()

    def post(self, path: str, body: object = None, *, timeout: float | None = 60.0) -> Any:
        """POST a JSON document and return the JSON document of the answer."""
        return self.request("POST", path, {} if body is None else body, timeout=timeout).json()

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def ensure_running(self, arguments: Sequence[str] = ()) -> bool:
        """Start the daemon with these arguments unless it answers; return whether it was started."""
        try:
            self._release(self._connection or self._dial())
            return False
        except NotRunning:
            self._start_daemon(arguments)
            return True

    # -- one exchange --------------------------------------------------------------------------------------------------

    def _encode(
        self, method: str, path: str, body: object, headers: Mapping[str, str] | None
    ) -> Callable[[BufferedSocket], bytes]:
        """Return a function that makes the request's bytes for a connection: the headers depend on the kind of connection."""
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {"Accept": "application/json", "User-Agent": "ao"}
        if body is not None:
            fields["Content-Type"] = "application/json"
        if body is not None or method in ("POST", "PUT", "PATCH"):
            fields["Content-Length"] = str(len(content))
        if method in ("POST", "PUT", "PATCH", "DELETE"):
            fields["Idempotency-Key"] = os.urandom(16).hex()
        fields |= _caller_headers()
        if self._notice is not None and not os.environ.get("AO_SESSION"):
            fields["X-AO-Notices"] = "shown"  # a person reads them here, so they need no other delivery
        fields |= headers or {}

        def encode(connection: BufferedSocket) -> bytes:
            target_headers = (
                {"Host": connection.peer, "Authorization": f"Bearer {self._token()}"}
                if connection.peer
                else {"Host": "localhost"}
            )
            head = "".join(f"{name}: {value}\r\n" for name, value in (target_headers | fields).items())
            return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + content

        return encode

    def _send(self, payload: Callable[[BufferedSocket], bytes], timeout: float | None) -> StreamedResponse:
        """Send a request over the free connection or a new one, starting the daemon if needed; return the answer as a stream."""
        connection, self._connection = self._connection, None
        if connection is None:
            try:
                connection = self._dial()
            except NotRunning:
                if not self.start or self._is_confined:
                    raise
                self._start_daemon(())
                connection, self._connection = self._connection or self._dial(), None
        try:
            connection.sock.settimeout(timeout)
            connection.send(payload(connection))
            stream = StreamedResponse(connection, self._release)
        except BaseException:
            connection.close()
            raise
        if self._notice is not None and (notices := stream.headers.get("x-ao-notice")):
            for text in dict.fromkeys(notices.split(",")):
                if text not in self._shown_notices:
                    self._shown_notices.add(text)
                    self._notice(unquote(text.strip()))
        return stream

    def _repeat(self, send: Callable[[], Result], timeout: float | None, repeat: bool) -> Result:
        """Call `send` again if the connection broke, up to `MAX_ATTEMPTS` times if `repeat` is set."""
        for attempt in range(MAX_ATTEMPTS - 1 if repeat else 0):
            try:
                return self._with_timeout(send, timeout)
            except ConnectionBroken:
                self.close()
                time.sleep(0.1 * attempt)  # a dying daemon's socket still accepts connections for a moment
        return self._with_timeout(send, timeout)

    def _with_timeout(self, send: Callable[[], Result], timeout: float | None) -> Result:
        """Call `send`; raise Unreachable if it exceeds its timeout."""
        try:
            return send()
        except TimeoutError:
            self.close()
            raise Unreachable(f"the daemon did not answer within {timeout:g} s", f"see {self.log_path}") from None

    def _release(self, connection: BufferedSocket) -> None:
        """Keep a connection for the next request, or close it if there is already one."""
        if self._connection is None:
            self._connection = connection
        elif self._connection is not connection:
            connection.close()

    # -- finding and starting it ---------------------------------------------------------------------------------------

    def _dial(self) -> BufferedSocket:
        """Connect to the daemon: over its Unix socket, else over TCP; raise NotRunning if nothing answers."""
        info = self.info()
        address = info.get("socket")
        try:
            if address and hasattr(socket, "AF_UNIX"):
                sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                connection = _connect(sock, str(address), "")
                try:
                    _check_owner(f"the daemon at {address}", _peer_uid(sock))
                except Unreachable:
                    connection.close()
                    raise
                return connection
            if url := str(info.get("url") or ""):
                peer = url.partition("://")[2].rstrip("/")
                host, _, port = peer.rpartition(":")
                return _connect(socket.socket(socket.AF_INET), (host, int(port)), peer)
        except PermissionError:
            raise Unreachable(
                f"the daemon's socket {address} may not be opened", "is it another user's $AO_HOME?"
            ) from None
        except (OSError, ValueError):
            pass
        raise NotRunning

    def _token(self) -> str:
        """Return the token for TCP: of `$AO_HOME/token`, or of the environment in a sandbox."""
        try:
            with open(os.path.join(self.home, "token"), encoding="ascii") as file:
                return file.read().strip()
        except (OSError, ValueError):
            return os.environ["AO_TOKEN"] if self._is_confined else ""

    def _start_daemon(self, arguments: Sequence[str]) -> None:
        """Start the daemon and wait until it answers. If two are started at once, one exits in favor of the other."""
        began = last_alive = time.monotonic()
        is_announced, kills = False, 0
        child = self._spawn(arguments)
        while (now := time.monotonic()) < began + START_TIMEOUT:
            if self._is_answering():
                child.returncode = 0  # it outlives this process: avoid the ResourceWarning of Popen
                return
            if child.poll() is None:
                last_alive = now
            elif child.returncode and now > last_alive + 0.2 and not self._is_another_starting():
                reason, kills = self._exit_reason(child.returncode), kills + (child.returncode < 0)
                if kills == 3 or (child.returncode > 0 and "a daemon runs already" not in reason):
                    raise Unreachable(f"the daemon could not start: {reason}", self._remedy)
                child, last_alive = self._spawn(arguments), now  # it was killed, or the other daemon has died
            elif now > last_alive + 1.0:  # it exited in favor of a daemon that was ending
                child, last_alive = self._spawn(arguments), now
            if not is_announced and now > began + 1.0 and self._waiting is not None:
                self._waiting("starting the daemon…")
                is_announced = True
            time.sleep(0.02)
        raise Unreachable(f"the daemon did not answer within {START_TIMEOUT:g} s of its start", self._remedy)

    @property
    def _remedy(self) -> str:
        """The remedy for a daemon that does not start."""
        return f"see {self.log_path}, or run `ao start --foreground`; where $AO_HOME is damaged, `ao doctor --repair`"

    def _is_another_starting(self) -> bool:
        """Return whether another daemon holds the lock: it is starting, or ending."""
        from agent_orchestrator.base.processes import is_process_running

        try:
            with open(os.path.join(self.home, "daemon.lock"), encoding="ascii") as file:
                return is_process_running(int(file.read()))
        except (OSError, ValueError):
            return False

    def _is_answering(self) -> bool:
        """Return whether the daemon answers a health check."""
        try:
            connection = self._dial()
        except Unreachable:
            return False
        try:
            connection.sock.settimeout(START_TIMEOUT)
            connection.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with StreamedResponse(connection, self._release) as stream:
                stream.read()
                return stream.status == 200
        except (Unreachable, TimeoutError):
            connection.close()
            return False

    def _spawn(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start the daemon's process in the background, its errors appended to its log."""
        import subprocess

        try:
            os.makedirs(self.home, mode=0o700, exist_ok=True)
            _check_owner(self.home, os.stat(self.home).st_uid)
            with open(self.log_path, "ab") as log:  # a crash before it opens its log appears there as well
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
        """Return the environment for a daemon that this process starts."""
        env = {name: value for name, value in os.environ.items() if name not in _SESSION_VARIABLES}
        env["AO_HOME"] = self.home
        if env.get("AO_CONFIG"):
            env["AO_CONFIG"] = os.path.abspath(os.path.expanduser(env["AO_CONFIG"]))
        return env

    def _exit_reason(self, code: int) -> str:
        """Return why the daemon exited: the signal, its last error in the log since its start, or its exit code."""
        if code < 0:
            return f"it was killed by signal {-code}"
        try:
            with open(self.log_path, "rb") as log:
                log.seek(
                    self._log_size if self._log_size <= os.fstat(log.fileno()).st_size else 0
                )  # the log was rotated
                lines = log.read().decode(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        errors = [line for line in lines if line.startswith("ao: ")] or lines  # other log lines may follow the error
        return errors[-1].removeprefix("ao: ") if errors else f"it exited with {code}"


def _caller_headers() -> dict[str, str]:
    """Return headers with the command's folder, configuration and session token: the daemon finds the project and the caller by them."""
    fields = {}
    try:
        fields["X-AO-Cwd"] = quote(os.getcwd())
    except OSError:  # the working directory was removed
        pass
    if config := os.environ.get("AO_CONFIG"):
        fields["X-AO-Config"] = quote(os.path.abspath(os.path.expanduser(config)))
    if (token := os.environ.get("AO_TOKEN")) and os.environ.get("AO_SESSION"):
        fields["X-AO-Token"] = quote(token)  # identifies the agent whose command this is
    return fields


def _check_owner(what: str, user: int) -> None:
    """Raise Unreachable if another user owns this: commands from the daemon's answers are run, for example by `ao attach`. Root is
    trusted.
    """
    if os.name == "posix" and user not in (os.geteuid(), 0):
        raise Unreachable(
            f"{what} belongs to another user (number {user})",
            "set AO_HOME to a folder of your own, or run `ao` as that user",
        )


def _peer_uid(sock: socket.socket) -> int:
    """Return the user id at the other end of a Unix socket, or of its folder's owner if the system does not report it."""
    if hasattr(socket, "SO_PEERCRED"):
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int.from_bytes(credentials[4:8], sys.byteorder)
    return os.stat(os.path.dirname(sock.getpeername())).st_uid


def _connect(sock: socket.socket, address: Any, peer: str) -> BufferedSocket:
    """Connect a socket within 5 seconds; close it on failure."""
    try:
        sock.settimeout(5.0)
        sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return BufferedSocket(sock, peer)
