"""The daemon among faults: stale files, taken ports, several starts at once, odd homes, a restart of the machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused, send_and_wait


@pytest.fixture
def off(tmp_path: Path) -> Iterator[Sandbox]:
    """A home and a repository whose daemon has not been started."""
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository()
        (tmp_path / "ao").mkdir()
        (tmp_path / "ao" / "config.yaml").write_text(f"port: {_free_port()}\n")
        yield sandbox


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _daemons(box: Sandbox) -> list[int]:
    found = []
    for pid in box.processes():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if {b"agent_orchestrator.daemon", b"agent_orchestrator.testing.preloaded_daemon"} & set(command):
            found.append(pid)
    return found


def test_several_commands_at_once_start_one_daemon(off: Sandbox) -> None:
    command = [sys.executable, "-m", "agent_orchestrator", "status", "--json"]
    running = [
        subprocess.Popen(command, cwd=off.repo, env=off.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(5)
    ]
    said = [process.communicate(timeout=120) for process in running]
    assert [(process.returncode, err) for process, (_, err) in zip(running, said, strict=True)] == [(0, "")] * 5
    assert all(json.loads(out) == {"sessions": []} for out, _ in said)
    off.until(lambda: _daemons(off) == [off.daemon_pid()], "the others to give way")
    assert "is taken" not in off.home.log.read_text(), "the lock held them, not the first one's port"


def test_its_log_is_turned_over_and_only_some_of_it_is_kept(off: Sandbox) -> None:
    log, before = off.home.log, "a line of long ago\n" * 600_000
    log.write_text(before)
    for number in range(1, 5):
        log.with_name(f"daemon.log.{number}").write_text(f"{number}\n")
    off.start()
    off.until(lambda: "event=serving" in log.read_text(), "it to say something")
    assert log.stat().st_size < 100_000
    kept = {path.name: path for path in log.parent.glob("daemon.log.*")}
    assert len(kept) == 4 and kept["daemon.log.1"].read_text() == before
    assert [kept[f"daemon.log.{number}"].read_text() for number in (2, 3, 4)] == ["1\n", "2\n", "3\n"]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in (log, kept["daemon.log.1"]))
    assert Path(f"/proc/{off.daemon_pid()}/fd/2").readlink() == log, "what it says in distress goes there too"


def test_a_second_daemon_is_refused(off: Sandbox) -> None:
    off.start()
    second = subprocess.run(
        [sys.executable, "-m", "agent_orchestrator.daemon", "--foreground"],
        env=off.env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert_refused(second, 1, "runs already", str(off.daemon_pid()), "ao shutdown")
    assert off.ao("start", "--no-open").returncode == 0


def test_stale_files_do_not_keep_it_from_starting(off: Sandbox) -> None:
    first = off.start()
    off.ao("new", "[[wait]]", "--name", "w")
    off.stop(signal.SIGKILL)
    assert off.home.info.exists() and off.home.lock.exists()
    off.home.info.write_text(json.dumps({**json.loads(off.home.info.read_text()), "pid": 4194303}))
    off.home.lock.write_text("4194303\n")
    assert off.json("status")["sessions"][0]["id"] == "app-w"
    assert off.daemon_pid() not in (None, first)


def test_daemon_json_tells_where_it_is(off: Sandbox) -> None:
    assert off.ao("status").returncode == 0
    info = json.loads(off.home.info.read_text())
    assert set(info) >= {"pid", "startedAt", "socket", "url", "version"}
    assert Path(info["socket"]).is_socket() and info["startedAt"].endswith("Z")
    assert off.home.info.stat().st_mode & 0o077 == 0
    assert (off.home.path / "token").stat().st_mode & 0o777 == 0o600
    assert off.ao("--version").stdout.split()[-1] == info["version"]
    off.ao("shutdown")
    off.until(lambda: not _daemons(off), "its end")
    assert not off.home.info.exists()
    again = off.ao("shutdown", check=False)
    assert again.returncode == 0 and "Traceback" not in again.stderr


def test_a_port_that_is_taken(off: Sandbox) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert_refused(off.ao("start", "--no-open", "--port", str(port), check=False), 4, str(port))
        assert _daemons(off) == []
        off.home.config.write_text(f"port: {port}\n")
        assert_refused(off.ao("status", check=False), 4, str(port), "port")
        assert _daemons(off) == []


def test_the_default_port_moves_and_says_so(off: Sandbox) -> None:
    off.home.config.unlink()
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", 3000))
            other.listen()
        except OSError:
            pass  # somebody has it: just as good
        done = off.ao("start", "--no-open")
        url = json.loads(off.home.info.read_text())["url"]
        assert url.startswith("http://127.0.0.1:") and not url.endswith(":3000")
        assert "3000" in done.stdout + done.stderr and url in done.stdout


def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    with Sandbox(tmp_path, "process") as box:
        box.repository()
        (tmp_path / "file").write_text("")
        box.env["AO_HOME"] = str(tmp_path / "file" / "home")
        done = box.ao("status", check=False)
        assert_refused(done, 4 if done.returncode == 4 else 1, str(tmp_path / "file"))
        if os.getuid():
            (tmp_path / "shut").mkdir(mode=0o500)
            box.env["AO_HOME"] = str(tmp_path / "shut" / "home")
            assert_refused(box.ao("status", check=False), 4, str(tmp_path / "shut"))


@pytest.mark.parametrize("folder", ["with a space and ünï", "long/" + "/".join(["x" * 60] * 3)])
def test_homes_with_odd_and_long_paths(tmp_path: Path, runtime: str, folder: str) -> None:
    with Sandbox(tmp_path / folder, runtime) as box:
        box.repository()
        box.start()
        box.ao("new", "[[say: ready]]", "--name", "w")
        send_and_wait(box, "w", "[[edit: a.txt|one]]")
        box.ao("stop", "w")


WITH_FEW = """
import json, os, resource, signal, sys
from agent_orchestrator.daemon import __main__ as daemon
for few in range(3, 24):
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.dup2(writing, 2)
        os.closerange(3, 64)
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))
        sys.argv = ["daemon", "--foreground"]
        sys.exit(daemon.main())
    os.close(writing)
    said = []
    with os.fdopen(reading) as lines:
        for line in lines:
            said.append(line)
            if "event=serving" in line:
                os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print(json.dumps(said))
"""


def test_nobody_else_writes_into_its_home_whatever_it_was_started_with(off: Sandbox) -> None:
    """Where a home is open to others, a file that they may write would be a command: of tmux, say."""
    off.home.path.chmod(0o755)
    before = os.umask(0)
    try:
        off.ao("new", "[[edit: x.txt|x]] [[commit: x]] [[done: x]]", "--name", "w")
    finally:
        os.umask(before)
    off.until(lambda: off.session("app-w")["activity"] == "idle", "it to be at rest")
    entered = [off.home.path, *(one for one in off.home.path.iterdir() if one.is_dir() and one.stat().st_mode & 0o001)]
    found = [one for folder in entered for one in folder.iterdir() if not one.is_symlink()]
    assert off.home.path / "lease.json" in found
    assert [str(one) for one in found if one.stat().st_mode & 0o002] == []


def test_nobody_else_reads_a_configuration_that_it_writes_into_its_home(off: Sandbox, tmp_path: Path) -> None:
    off.home.path.chmod(0o755)
    off.start()
    off.home.config.unlink()
    off.ao("config", "set", "notifiers.slack", '{"plugin": "slack", "token": "xoxb-of-mine"}', cwd=tmp_path)
    assert "xoxb-of-mine" in off.home.config.read_text()
    assert off.home.config.stat().st_mode & 0o777 == 0o600


def test_with_too_few_descriptors_it_says_so_in_a_line(off: Sandbox) -> None:
    done = subprocess.run([sys.executable, "-c", WITH_FEW], env=off.env, stdout=subprocess.PIPE, check=True)
    starts = [json.loads(line) for line in done.stdout.splitlines()]
    served = ["event=serving" in "".join(said) for said in starts]
    assert not served[0] and served[-1]
    for said, serves in zip(starts, served, strict=True):
        assert all(line.startswith(("ao: ", "timestamp=")) for line in said), "".join(said)
        assert sum(line.startswith("ao: ") for line in said) == (not serves), said


def test_no_git_identity(off: Sandbox) -> None:
    (off.user_home / ".gitconfig").unlink()
    off.start()
    off.ao("new", "[[write: a.txt|x]] [[wait]]", "--name", "anon")
    path = Path(off.until(lambda: (now := off.session("anon"))["activity"] == "idle" and now)["workspacePath"])
    assert "refs/ao/rescue/app-anon" in off.ao("stop", "anon").stdout
    off.ao("restore", "anon")
    assert (path / "a.txt").read_text().strip() == "x"


def test_without_tmux_the_process_runtime_serves(off: Sandbox) -> None:
    programs = off.folder / "bin"
    programs.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for file in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if file.name != "tmux" and not os.path.lexists(programs / file.name):
                (programs / file.name).symlink_to(file)
    off.env["PATH"] = str(programs)
    (off.repo / "agent-orchestrator.yaml").write_text("defaults: {agent: demo, runtime: auto}\n")
    off.start()
    assert off.json("new", "[[wait]]")["runtime"] == "process"
    before = len(off.sessions())
    assert_refused(off.ao("new", "[[wait]]", "--runtime", "tmux", check=False), 1, "tmux", "install")
    assert len(off.sessions()) == before
    assert "tmux" in off.ao("doctor", check=False).stdout


def test_a_restart_of_the_machine(off: Sandbox, runtime: str) -> None:
    (off.repo / "agent-orchestrator.yaml").write_text(f"defaults: {{agent: demo, runtime: {runtime}}}\n")
    off.start()
    off.ao("new", "[[stuck]]", "--name", "busy")
    off.ao("new", "[[stuck]]", "--name", "busier")
    off.ao("new", "[[say: x]]", "--name", "quiet")
    off.until(lambda: off.session("quiet")["activity"] == "idle")
    off.until(lambda: {off.session(name)["activity"] for name in ("busy", "busier")} == {"active"})
    daemon = off.daemon_pid()
    off.stop(signal.SIGKILL)
    for pid in off.processes():
        if pid != daemon:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    off.env["AO_TEST_BOOT_ID"] = "other"
    off.start()
    quiet = off.session("quiet")
    assert (quiet["status"], quiet["activity"], quiet["column"]) == ("interrupted", "interrupted", "Needs you")
    off.until(lambda: all(off.session(name)["pid"] for name in ("busy", "busier")), "both to be restored")
    assert off.session("quiet")["status"] == "interrupted"
    assert off.json("send", "quiet", "[[edit: b.txt|y]]", "--wait")["state"] in ("acknowledged", "delivered")
    off.until((Path(off.session("quiet")["workspacePath"]) / "b.txt").exists, "the message to be acted on")


def test_shutdown_leaves_sessions_running_or_stops_them(off: Sandbox) -> None:
    off.start()
    off.ao("new", "[[write: a|b]] [[wait]]", "--name", "w")
    pid = off.until(lambda: (now := off.session("w"))["activity"] == "idle" and now["pid"], "its work")
    off.ao("shutdown")
    off.until(lambda: not _daemons(off), "its end")
    os.kill(pid, 0)
    assert off.json("status", "w")["pid"] == pid
    off.ao("shutdown", "--sessions")
    off.until(lambda: not _daemons(off), "its end")
    assert off.json("status", "w")["status"] == "stopped"
    assert off.git("rev-parse", "refs/ao/rescue/app-w")


def test_shutdown_stops_sessions_of_a_daemon_that_does_not_run(off: Sandbox) -> None:
    assert off.ao("shutdown", "--sessions").stdout == "The daemon is not running.\n"
    assert not off.home.lock.exists()
    off.start()
    off.ao("new", "[[write: a|b]] [[wait]]", "--name", "w")
    pid = off.until(lambda: (now := off.session("w"))["activity"] == "idle" and now["pid"], "its work")
    off.stop()
    os.kill(pid, 0)
    assert "all sessions are stopped" in off.ao("shutdown", "--sessions").stdout
    off.until(lambda: not off.processes(), "the end of everything")
    assert off.json("status", "w")["status"] == "stopped"
    assert off.git("rev-parse", "refs/ao/rescue/app-w")


def test_shutdown_gives_the_places_of_those_it_stops_to_nobody(tmp_path: Path) -> None:
    config = "defaults: {agent: demo, runtime: process}\norchestrator: {autoAssign: true, maxParallelAgents: 1}\n"
    with Sandbox(tmp_path, "process") as box:
        box.repository(config=config)
        box.start()
        for number in range(4):
            box.ao("issue", "new", f"task {number}", "-m", "[[sleep: 60]]")
        box.until(lambda: any(one["pid"] for one in box.json("status")["sessions"]), "the first one")
        box.ao("shutdown", "--sessions")
        box.until(lambda: not _daemons(box), "its end")
        box.start()
        told = [event["type"] for event in box.events()]
        ending = told[told.index("stop-requested") : told.index("daemon-stopped")]
        assert not {"session-created", "agent-launched"} & set(ending)
