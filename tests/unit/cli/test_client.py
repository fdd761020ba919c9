"""The daemon client with a real server on a real socket."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator import errors
from agent_orchestrator.base.http_client import (
    BufferedSocket,
    ConnectionBroken,
    StreamedResponse,
    quote,
    unquote,
    with_query,
)
from agent_orchestrator.client import daemon_client as client_module
from agent_orchestrator.client.daemon_client import DaemonClient, NotRunning
from tests.unit.cli.scripted import DaemonReply, ScriptedDaemon, problem

Connect = Callable[..., DaemonClient]


@pytest.fixture
def connect(home: Path) -> Iterator[Connect]:
    """Yield a function that creates clients for the test's home; they are closed afterwards."""
    clients: list[DaemonClient] = []

    def connect(start: bool = True, **options: Any) -> DaemonClient:
        clients.append(DaemonClient(home, start=start, **options))
        return clients[-1]

    yield connect
    for each in clients:
        each.close()


def test_one_connection_serves_many_requests(daemon: ScriptedDaemon, connect: Connect) -> None:
    daemon.route("GET", "/api/x", {"a": "ü"})
    daemon.route("POST", "/api/x", DaemonReply({"b": 1}, chunks=[b'{"b"', b": 1}"]))
    ao = connect(start=False)
    assert ao.get("/api/x") == {"a": "ü"}
    assert ao.post("/api/x") == {"b": 1}
    assert ao.get("/api/x") == {"a": "ü"}
    assert {each.connection for each in daemon.requests} == {0}


def test_a_request_names_its_folder_and_configuration(
    daemon: ScriptedDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connect: Connect
) -> None:
    folder = tmp_path / "a b,ü"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("AO_CONFIG", "conf.yaml")
    connect().request("GET", "/healthz")
    headers = daemon.requests[-1].headers
    assert unquote(headers["x-ao-cwd"]) == str(folder)
    assert unquote(headers["x-ao-config"]) == str(folder / "conf.yaml")
    assert "authorization" not in headers


@pytest.mark.parametrize("drop", ["before", "within"])
def test_a_request_is_repeated_with_the_same_key_after_a_broken_connection(
    daemon: ScriptedDaemon, drop: str, connect: Connect
) -> None:
    daemon.route(
        "POST",
        "/api/x",
        [DaemonReply(drop="before"), DaemonReply({"long": "body"}, drop=drop), DaemonReply({"ok": True})],
    )
    assert connect(start=False).post("/api/x", {"n": 1}) == {"ok": True}
    keys = [each.headers["idempotency-key"] for each in daemon.requests]
    assert len(keys) == 3 and len(set(keys)) == 1
    assert [each.json() for each in daemon.requests] == [{"n": 1}] * 3


def test_two_requests_have_different_keys(daemon: ScriptedDaemon, connect: Connect) -> None:
    daemon.route("POST", "/api/x", {})
    ao = connect()
    ao.post("/api/x")
    ao.post("/api/x")
    assert daemon.requests[0].headers["idempotency-key"] != daemon.requests[1].headers["idempotency-key"]


def test_a_request_is_given_up_after_several_attempts(daemon: ScriptedDaemon, connect: Connect) -> None:
    daemon.route("GET", "/api/x", DaemonReply(drop="before"))
    with pytest.raises(ConnectionBroken):
        connect(start=False).get("/api/x")
    assert len(daemon.requests) == client_module.MAX_ATTEMPTS


@pytest.mark.parametrize(
    ("category", "kind", "code"),
    [
        ("not-found", errors.NotFound, 3),
        ("usage", errors.UsageError, 2),
        ("config", errors.ConfigError, 2),
        ("conflict", errors.Conflict, 1),
        ("unreachable", errors.Unreachable, 4),
        ("strange", errors.Denied, 3),
    ],
)
def test_a_problem_document_becomes_the_matching_error(
    daemon: ScriptedDaemon, category: str, kind: type[errors.AoError], code: int, connect: Connect
) -> None:
    daemon.route("GET", "/api/x", problem(category, "no such thing", "look elsewhere", status=403, exit_code=code))
    with pytest.raises(errors.AoError) as caught:
        connect().get("/api/x")
    assert type(caught.value) is kind
    assert (caught.value.text, caught.value.remedy, caught.value.exit_code) == ("no such thing", "look elsewhere", code)


def test_a_response_without_a_problem_document_is_an_error_too(daemon: ScriptedDaemon, connect: Connect) -> None:
    daemon.route("GET", "/api/x", DaemonReply(b"<h1>Bad\nGateway</h1>", 502))
    with pytest.raises(errors.AoError, match="502: <h1>Bad Gateway"):
        connect().get("/api/x")


def test_lines_and_server_sent_events_are_read_incrementally(daemon: ScriptedDaemon, connect: Connect) -> None:
    daemon.route("GET", "/api/lines", DaemonReply(chunks=[b"one\ntw", b"o\r\nth", b"ree"]))
    sse = b"id: 7\nevent: a\ndata: x\n\n: comment\n\ndata: 1\ndata: 2\n\n"
    daemon.route("GET", "/api/sse", DaemonReply(chunks=[sse[index : index + 3] for index in range(0, len(sse), 3)]))
    ao = connect()
    with ao.stream("GET", "/api/lines") as stream:
        assert list(iter(stream.read_line, None)) == ["one", "two", "three"]
    with ao.stream("GET", "/api/sse") as stream:
        assert list(iter(stream.read_event, None)) == [("7", "a", "x"), ("", "message", "1\n2")]


def test_a_silent_stream_can_be_read_again(home: Path) -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nab")
    with ours, theirs, StreamedResponse(BufferedSocket(ours), lambda _: None) as stream:
        stream.set_timeout(0.01)
        with pytest.raises(TimeoutError):
            stream.read_line()
        theirs.sendall(b"c\n\r\n0\r\n\r\n")
        stream.set_timeout(5.0)
        assert (stream.read_line(), stream.read_line()) == ("abc", None)


def test_notices_are_passed_on(daemon: ScriptedDaemon, connect: Connect) -> None:
    daemon.route("GET", "/api/x", DaemonReply({}, headers={"X-AO-Notice": f"{quote('one, two')},{quote('three')}"}))
    notices: list[str] = []
    connect(notice=notices.append).get("/api/x")
    assert notices == ["one, two", "three"]


def test_the_daemon_learns_whether_a_person_sees_its_notices(
    daemon: ScriptedDaemon, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.route("GET", "/api/x", {})
    connect().get("/api/x")
    connect(notice=lambda _: None).get("/api/x")
    monkeypatch.setenv("AO_SESSION", "app-a")  # by an agent's command
    connect(notice=lambda _: None).get("/api/x")
    assert [each.headers.get("x-ao-notices") for each in daemon.requests_for("GET", "/api/x")] == [None, "shown", None]


def test_a_slow_daemon_is_unreachable(daemon: ScriptedDaemon, connect: Connect) -> None:
    release = threading.Event()
    daemon.route("GET", "/api/x", lambda _: DaemonReply({"released": release.wait(5)}))
    with pytest.raises(errors.Unreachable, match=r"within 0\.05 s"):
        connect().request("GET", "/api/x", timeout=0.05)
    release.set()


def test_without_a_socket_the_token_is_sent_over_tcp(home: Path, connect: Connect) -> None:
    home.mkdir(parents=True)
    (home / "token").write_text("s3cret\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (home / "daemon.json").write_text(json.dumps({"pid": 1, "socket": None, "url": f"http://127.0.0.1:{port}"}))
        requests: list[bytes] = []

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                requests.append(connection.recv(65536))
                connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}")

        thread = threading.Thread(target=serve)
        thread.start()
        assert connect(start=False).get("/api/x") == {}
        thread.join(60)
    assert b"Authorization: Bearer s3cret\r\n" in requests[0]
    assert f"Host: 127.0.0.1:{port}\r\n".encode() in requests[0]


# -- starting it -------------------------------------------------------------------------------------------------------

FAKE_DAEMON = """
import json, os, socket, sys
home = os.environ["AO_HOME"]
os.path.exists(home + "/kills") and (print("serving", file=open(home + "/kills", "a"), flush=True), os.kill(os.getpid(), 9))
os.path.exists(home + "/die") and sys.exit(open(home + "/die").read())
path = home + "/s"
server = socket.socket(socket.AF_UNIX)
server.bind(path)
server.listen()
json.dump({"pid": os.getpid(), "socket": path, "args": sys.argv[1:], "env": sorted(os.environ)}, open(home + "/tmp", "w"))
os.rename(home + "/tmp", home + "/daemon.json")
server.settimeout(60)
while True:
    connection, _ = server.accept()
    with connection:
        if connection.recv(65536).startswith(b"POST /api/shutdown"):
            break
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\n{}")
"""


@pytest.fixture
def fake_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a package that shadows ours, with a small fake of the `daemon` module; the client starts it as usual."""
    package = tmp_path / "agent_orchestrator"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "daemon.py").write_text(FAKE_DAEMON)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return package


def test_the_daemon_is_started_if_its_socket_refuses(
    home: Path, fake_module: Path, monkeypatch: pytest.MonkeyPatch, connect: Connect
) -> None:
    home.mkdir(parents=True)
    inherited = ("AO_SESSION", "AO_CHECK", "AO_REACTION_FILE", "AO_REPEATED")
    for name in inherited:
        monkeypatch.setenv(name, "app-x")
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(home / "old"))
    stale.close()
    (home / "daemon.json").write_text(json.dumps({"pid": 999999999, "socket": str(home / "old")}))
    ao = connect()
    assert ao.ensure_running(["--port", "4000"])
    assert not ao.ensure_running()
    info = ao.info()
    assert info["args"] == ["--port", "4000"]
    assert not set(inherited) & set(info["env"])
    assert os.getsid(info["pid"]) == info["pid"] != os.getpid()
    assert ao.get("/api/x") == {}
    with pytest.raises(ConnectionBroken):
        ao.request("POST", "/api/shutdown", repeat=False)
    os.waitpid(info["pid"], 0)


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        ("ao: port 3000 is taken", "port 3000 is taken"),
        ("ao: port 3000 is taken\ntimestamp=1 level=info event=stall", "port 3000 is taken"),
        ("", "it exited with 1"),
    ],
)
def test_a_failed_start_of_the_daemon_is_reported_with_its_last_line(
    home: Path, fake_module: Path, connect: Connect, last: str, reason: str
) -> None:
    home.mkdir(parents=True)
    (home / "daemon.log").write_text("an old line\n")
    (home / "die").write_text(last)
    with pytest.raises(errors.Unreachable) as caught:
        connect().get("/api/x")
    assert caught.value.text == f"the daemon could not start: {reason}"
    assert str(home / "daemon.log") in caught.value.remedy


def test_a_daemon_killed_during_its_start_is_restarted_a_few_times(
    home: Path, fake_module: Path, connect: Connect
) -> None:
    home.mkdir(parents=True)
    (home / "kills").touch()
    with pytest.raises(errors.Unreachable, match="the daemon could not start: it was killed by signal 9"):
        connect().get("/api/x")
    assert (home / "kills").read_text() == "serving\n" * 3


def test_a_daemon_that_yields_to_another_is_no_failure(home: Path, fake_module: Path, connect: Connect) -> None:
    home.mkdir(parents=True)
    (home / "daemon.lock").write_text(f"{os.getpid()}\n")
    (home / "die").write_text("a daemon runs already")
    timer = threading.Timer(0.4, (home / "die").unlink)
    timer.start()
    ao = connect()
    assert ao.get("/api/x") == {}
    timer.join()
    with pytest.raises(ConnectionBroken):
        ao.request("POST", "/api/shutdown", repeat=False)
    os.waitpid(ao.info()["pid"], 0)


def test_a_daemon_that_yielded_to_a_dying_one_is_started_again(home: Path, fake_module: Path, connect: Connect) -> None:
    home.mkdir(parents=True)
    (home / "die").write_text("a daemon runs already")  # and no process holds the lock any more
    timer = threading.Timer(0.4, (home / "die").unlink)
    timer.start()
    ao = connect()
    assert ao.get("/api/x") == {}
    timer.join()
    with pytest.raises(ConnectionBroken):
        ao.request("POST", "/api/shutdown", repeat=False)
    os.waitpid(ao.info()["pid"], 0)


def test_a_client_that_may_not_start_the_daemon_says_it_is_not_running(home: Path, connect: Connect) -> None:
    with pytest.raises(NotRunning):
        connect(start=False).get("/api/x")
    assert not home.exists()


def test_a_home_that_cannot_be_created_is_unreachable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.Unreachable, match="could not be started"):
        DaemonClient(tmp_path / "file" / "home").get("/api/x")


def test_a_chunk_with_a_negative_size_is_refused() -> None:
    """The sender need not close the connection for that."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(30)
        theirs.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabcdefgh\r\n0\r\n\r\n")
        with pytest.raises(ConnectionBroken, match="without a size"):
            StreamedResponse(BufferedSocket(ours), lambda _: None).read()


def test_queries_and_headers_are_quoted() -> None:
    assert (
        with_query("/x", {"a": None, "b": True, "c": False, "d": "", "e": 0, "f": "ö &"}) == "/x?b=1&e=0&f=%C3%B6%20%26"
    )
    assert unquote(quote("a/b %ü\n")) == "a/b %ü\n"
    assert unquote("50%") == "50%"
    assert sys.getfilesystemencoding() == "utf-8"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_a_daemon_of_another_user_is_refused(home: Path, tmp_path: Path, connect: Connect) -> None:
    address = tmp_path / "his.sock"
    home.mkdir(exist_ok=True)
    info = home / "daemon.json"
    info.write_text(json.dumps({"socket": str(address), "url": "http://127.0.0.1:1"}))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        os.seteuid(4242)  # the peer's credentials are those of the listener
        try:
            listener.listen()
        finally:
            os.seteuid(0)
        for start in (False, True):
            with pytest.raises(errors.Unreachable, match="belongs to another user"):
                connect(start=start).get("/healthz")
    os.chown(info, 4242, 4242)
    with pytest.raises(errors.Unreachable, match=r"daemon\.json belongs to another user"):
        connect().get("/healthz")
    info.unlink()
    os.chown(home, 4242, 4242)
    with pytest.raises(errors.Unreachable, match="belongs to another user"):
        connect().get("/healthz")
    assert not (home / "daemon.log").exists()
