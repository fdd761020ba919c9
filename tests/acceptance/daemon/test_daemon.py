"""The daemon and faults: stale files, ports in use, several starts at once, unusual homes, a restart of the machine."""

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
def stopped_box(tmp_path: Path) -> Iterator[Sandbox]:
    """Yield a home and a repository whose daemon has not been started."""
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository()
        (tmp_path / "ao").mkdir()
        (tmp_path / "ao" / "config.yaml").write_text(f"port: {_free_port()}\n")
        yield sandbox


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _daemon_pids(box: Sandbox) -> list[int]:
    pids = []
    for pid in box.processes():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if {b"agent_orchestrator.daemon", b"agent_orchestrator.testing.preloaded"} & set(command):
            pids.append(pid)
    return pids


def test_several_commands_at_once_start_one_daemon(stopped_box: Sandbox) -> None:
    command = [sys.executable, "-m", "agent_orchestrator", "status", "--json"]
    running = [
        subprocess.Popen(
            command,
            cwd=stopped_box.repo,
            env=stopped_box.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(5)
    ]
    outputs = [process.communicate(timeout=120) for process in running]
    assert [(process.returncode, err) for process, (_, err) in zip(running, outputs, strict=True)] == [(0, "")] * 5
    assert all(json.loads(out) == {"sessions": []} for out, _ in outputs)
    stopped_box.wait_until(lambda: _daemon_pids(stopped_box) == [stopped_box.daemon_pid()], "the others to give way")
    assert "is taken" not in stopped_box.home.log.read_text(), "the lock held them, not the first one's port"


def test_the_log_is_rotated_and_four_old_files_are_kept(stopped_box: Sandbox) -> None:
    log, before = stopped_box.home.log, "a line of long ago\n" * 600_000
    log.write_text(before)
    for number in range(1, 5):
        log.with_name(f"daemon.log.{number}").write_text(f"{number}\n")
    stopped_box.start()
    stopped_box.wait_until(lambda: "event=serving" in log.read_text(), "a log line")
    assert log.stat().st_size < 100_000
    rotated = {path.name: path for path in log.parent.glob("daemon.log.*")}
    assert len(rotated) == 4 and rotated["daemon.log.1"].read_text() == before
    assert [rotated[f"daemon.log.{number}"].read_text() for number in (2, 3, 4)] == ["1\n", "2\n", "3\n"]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in (log, rotated["daemon.log.1"]))
    assert Path(f"/proc/{stopped_box.daemon_pid()}/fd/2").readlink() == log, "standard error goes there too"


def test_a_second_daemon_is_refused(stopped_box: Sandbox) -> None:
    stopped_box.start()
    second = subprocess.run(
        [sys.executable, "-m", "agent_orchestrator.daemon", "--foreground"],
        env=stopped_box.env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert_refused(second, 1, "runs already", str(stopped_box.daemon_pid()), "ao shutdown")
    assert stopped_box.ao("start", "--no-open").returncode == 0


def test_stale_files_do_not_prevent_a_start(stopped_box: Sandbox) -> None:
    first = stopped_box.start()
    stopped_box.ao("new", "[[wait]]", "--name", "w")
    stopped_box.stop(signal.SIGKILL)
    assert stopped_box.home.daemon_info.exists() and stopped_box.home.lock.exists()
    stopped_box.home.daemon_info.write_text(
        json.dumps({**json.loads(stopped_box.home.daemon_info.read_text()), "pid": 4194303})
    )
    stopped_box.home.lock.write_text("4194303\n")
    assert stopped_box.json("status")["sessions"][0]["id"] == "app-w"
    assert stopped_box.daemon_pid() not in (None, first)


def test_daemon_json_contains_the_daemons_addresses(stopped_box: Sandbox) -> None:
    assert stopped_box.ao("status").returncode == 0
    info = json.loads(stopped_box.home.daemon_info.read_text())
    assert set(info) >= {"pid", "startedAt", "socket", "url", "version"}
    assert Path(info["socket"]).is_socket() and info["startedAt"].endswith("Z")
    assert stopped_box.home.daemon_info.stat().st_mode & 0o077 == 0
    assert (stopped_box.home.path / "token").stat().st_mode & 0o777 == 0o600
    assert stopped_box.ao("--version").stdout.split()[-1] == info["version"]
    stopped_box.ao("shutdown")
    stopped_box.wait_until(lambda: not _daemon_pids(stopped_box), "its end")
    assert not stopped_box.home.daemon_info.exists()
    again = stopped_box.ao("shutdown", check=False)
    assert again.returncode == 0 and "Traceback" not in again.stderr


def test_a_configured_port_that_is_in_use_is_an_error(stopped_box: Sandbox) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert_refused(stopped_box.ao("start", "--no-open", "--port", str(port), check=False), 4, str(port))
        assert _daemon_pids(stopped_box) == []
        stopped_box.home.config.write_text(f"port: {port}\n")
        assert_refused(stopped_box.ao("status", check=False), 4, str(port), "port")
        assert _daemon_pids(stopped_box) == []


def test_a_default_port_in_use_is_replaced_by_another(stopped_box: Sandbox) -> None:
    stopped_box.home.config.unlink()
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", 3000))
            other.listen()
        except OSError:
            pass  # another program uses it: just as good
        done = stopped_box.ao("start", "--no-open")
        url = json.loads(stopped_box.home.daemon_info.read_text())["url"]
        assert url.startswith("http://127.0.0.1:") and not url.endswith(":3000")
        assert "3000" in done.stdout + done.stderr and url in done.stdout


def test_a_home_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
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
def test_homes_with_unusual_and_long_paths_work(tmp_path: Path, runtime: str, folder: str) -> None:
    with Sandbox(tmp_path / folder, runtime) as box:
        box.repository()
        box.start()
        box.ao("new", "[[say: ready]]", "--name", "w")
        send_and_wait(box, "w", "[[edit: a.txt|one]]")
        box.ao("stop", "w")


FEW_DESCRIPTORS = """
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


def test_other_users_cannot_write_into_the_home_even_with_umask_zero(stopped_box: Sandbox) -> None:
    """In a home that others may enter, a writable file could become a command, for example of tmux."""
    stopped_box.home.path.chmod(0o755)
    before = os.umask(0)
    try:
        stopped_box.ao("new", "[[edit: x.txt|x]] [[commit: x]] [[done: x]]", "--name", "w")
    finally:
        os.umask(before)
    stopped_box.wait_until(lambda: stopped_box.session("app-w")["activity"] == "idle", "it to be at rest")
    folders = [
        stopped_box.home.path,
        *(path for path in stopped_box.home.path.iterdir() if path.is_dir() and path.stat().st_mode & 0o001),
    ]
    paths = [path for folder in folders for path in folder.iterdir() if not path.is_symlink()]
    assert stopped_box.home.path / "lease.json" in paths
    assert [str(path) for path in paths if path.stat().st_mode & 0o002] == []


def test_other_users_cannot_read_a_configuration_that_the_daemon_wrote(stopped_box: Sandbox, tmp_path: Path) -> None:
    stopped_box.home.path.chmod(0o755)
    stopped_box.start()
    stopped_box.home.config.unlink()
    stopped_box.ao("config", "set", "notifiers.slack", '{"plugin": "slack", "token": "xoxb-of-mine"}', cwd=tmp_path)
    assert "xoxb-of-mine" in stopped_box.home.config.read_text()
    assert stopped_box.home.config.stat().st_mode & 0o777 == 0o600


@pytest.mark.long
def test_too_few_file_descriptors_are_reported_in_one_line(stopped_box: Sandbox) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FEW_DESCRIPTORS], env=stopped_box.env, stdout=subprocess.PIPE, check=True
    )
    starts = [json.loads(line) for line in done.stdout.splitlines()]
    served = ["event=serving" in "".join(lines) for lines in starts]
    assert not served[0] and served[-1]
    for lines, serves in zip(starts, served, strict=True):
        assert all(line.startswith(("ao: ", "timestamp=")) for line in lines), "".join(lines)
        assert sum(line.startswith("ao: ") for line in lines) == (not serves), lines


def test_work_is_saved_without_a_git_identity(stopped_box: Sandbox) -> None:
    (stopped_box.user_home / ".gitconfig").unlink()
    stopped_box.start()
    stopped_box.ao("new", "[[write: a.txt|x]] [[wait]]", "--name", "anon")
    path = Path(
        stopped_box.wait_until(lambda: (now := stopped_box.session("anon"))["activity"] == "idle" and now)[
            "workspacePath"
        ]
    )
    assert "refs/ao/rescue/app-anon" in stopped_box.ao("stop", "anon").stdout
    stopped_box.ao("restore", "anon")
    assert (path / "a.txt").read_text().strip() == "x"


def test_the_process_runtime_is_used_without_tmux(stopped_box: Sandbox) -> None:
    programs = stopped_box.folder / "bin"
    programs.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for file in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if file.name != "tmux" and not os.path.lexists(programs / file.name):
                (programs / file.name).symlink_to(file)
    stopped_box.env["PATH"] = str(programs)
    (stopped_box.repo / "agent-orchestrator.yaml").write_text("defaults: {agent: demo, runtime: auto}\n")
    stopped_box.start()
    assert stopped_box.json("new", "[[wait]]")["runtime"] == "process"
    before = len(stopped_box.sessions())
    assert_refused(stopped_box.ao("new", "[[wait]]", "--runtime", "tmux", check=False), 1, "tmux", "install")
    assert len(stopped_box.sessions()) == before
    assert "tmux" in stopped_box.ao("doctor", check=False).stdout


def test_working_sessions_are_restored_after_a_restart_of_the_machine(stopped_box: Sandbox, runtime: str) -> None:
    (stopped_box.repo / "agent-orchestrator.yaml").write_text(f"defaults: {{agent: demo, runtime: {runtime}}}\n")
    stopped_box.start()
    stopped_box.ao("new", "[[stuck]]", "--name", "busy")
    stopped_box.ao("new", "[[stuck]]", "--name", "busier")
    stopped_box.ao("new", "[[say: x]]", "--name", "quiet")
    stopped_box.wait_until(lambda: stopped_box.session("quiet")["activity"] == "idle")
    stopped_box.wait_until(lambda: {stopped_box.session(name)["activity"] for name in ("busy", "busier")} == {"active"})
    daemon = stopped_box.daemon_pid()
    stopped_box.stop(signal.SIGKILL)
    for pid in stopped_box.processes():
        if pid != daemon:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    stopped_box.env["AO_TEST_BOOT_ID"] = "other"
    stopped_box.start()
    quiet = stopped_box.session("quiet")
    assert (quiet["status"], quiet["activity"], quiet["column"]) == ("interrupted", "interrupted", "Needs you")
    stopped_box.wait_until(
        lambda: all(stopped_box.session(name)["pid"] for name in ("busy", "busier")), "both to be restored"
    )
    assert stopped_box.session("quiet")["status"] == "interrupted"
    assert stopped_box.json("send", "quiet", "[[edit: b.txt|y]]", "--wait")["state"] in ("acknowledged", "delivered")
    stopped_box.wait_until(
        (Path(stopped_box.session("quiet")["workspacePath"]) / "b.txt").exists, "the message to be acted on"
    )


def test_shutdown_leaves_sessions_running_or_stops_them(stopped_box: Sandbox) -> None:
    stopped_box.start()
    stopped_box.ao("new", "[[write: a|b]] [[wait]]", "--name", "w")
    pid = stopped_box.wait_until(
        lambda: (now := stopped_box.session("w"))["activity"] == "idle" and now["pid"], "its work"
    )
    stopped_box.ao("shutdown")
    stopped_box.wait_until(lambda: not _daemon_pids(stopped_box), "its end")
    os.kill(pid, 0)
    assert stopped_box.json("status", "w")["pid"] == pid
    stopped_box.ao("shutdown", "--sessions")
    stopped_box.wait_until(lambda: not _daemon_pids(stopped_box), "its end")
    assert stopped_box.json("status", "w")["status"] == "stopped"
    assert stopped_box.git("rev-parse", "refs/ao/rescue/app-w")


def test_shutdown_stops_the_sessions_of_a_stopped_daemon(stopped_box: Sandbox) -> None:
    assert stopped_box.ao("shutdown", "--sessions").stdout == "The daemon is not running.\n"
    assert not stopped_box.home.lock.exists()
    stopped_box.start()
    stopped_box.ao("new", "[[write: a|b]] [[wait]]", "--name", "w")
    pid = stopped_box.wait_until(
        lambda: (now := stopped_box.session("w"))["activity"] == "idle" and now["pid"], "its work"
    )
    stopped_box.stop()
    os.kill(pid, 0)
    assert "all sessions are stopped" in stopped_box.ao("shutdown", "--sessions").stdout
    stopped_box.wait_until(lambda: not stopped_box.processes(), "the end of everything")
    assert stopped_box.json("status", "w")["status"] == "stopped"
    assert stopped_box.git("rev-parse", "refs/ao/rescue/app-w")


def test_shutdown_starts_no_sessions_in_place_of_those_it_stops(tmp_path: Path) -> None:
    config = "defaults: {agent: demo, runtime: process}\norchestrator: {autoAssign: true, maxParallelAgents: 1}\n"
    with Sandbox(tmp_path, "process") as box:
        box.repository(config=config)
        box.start()
        for number in range(4):
            box.ao("issue", "new", f"task {number}", "-m", "[[sleep: 60]]")
        box.wait_until(lambda: any(session["pid"] for session in box.json("status")["sessions"]), "the first one")
        box.ao("shutdown", "--sessions")
        box.wait_until(lambda: not _daemon_pids(box), "its end")
        box.start()
        types = [event["type"] for event in box.events()]
        ending = types[types.index("stop-requested") : types.index("daemon-stopped")]
        assert not {"session-created", "agent-launched"} & set(ending)
