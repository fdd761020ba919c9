"""Sessions in containers, with a real daemon and a real engine."""

from __future__ import annotations

import http.server
import json
import os
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.docker.engine import IMAGE, ContainerEngine

SECRET = "sk-very-secret-0123456789"


@pytest.fixture
def box(docker: ContainerEngine, tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "docker", {**docker.env, "LOGIN_SECRET_TOKEN": "not-for-agents"}) as sandbox:
        yield sandbox
    docker.clear()


def begin(box: Sandbox, docker: str = "", rest: str = "") -> None:
    """Create a repository whose sessions run in containers of the test image, and start the daemon."""
    settings = f"image: {IMAGE}{f', {docker}' if docker else ''}"
    box.repository(
        config=f"defaults: {{agent: demo, runtime: docker}}\nprojects:\n  app:\n    path: .\n    docker: {{{settings}}}\n{rest}"
    )
    box.start()


def new(box: Sandbox, prompt: str, name: str = "s") -> Path:
    """Create a session, wait until its agent runs, and return its workspace."""
    box.ao("new", prompt, "--name", name)
    box.wait_until(lambda: box.session(name)["activity"] not in (None, "starting"), "the agent", 60)
    return Path(box.session(name)["workspacePath"])


def shell(command: str) -> str:
    """Return a directive of the demo agent that runs a command."""
    return f"[[sh: {command}]]"


def python(code: str) -> str:
    return shell(f"python3 -c {shlex.quote(code)} >answer.txt 2>&1; mv answer.txt answered.txt")


def answer(box: Sandbox, workspace: Path) -> str:
    box.wait_until((workspace / "answered.txt").exists, "the answer", 60)
    return (workspace / "answered.txt").read_text()


def container(docker: ContainerEngine, box: Sandbox) -> str:
    names = docker.run(
        "ps", "--quiet", "--filter", f"label=agent-orchestrator.session={box.sessions()[0]['id']}"
    ).split()
    assert len(names) == 1
    return names[0]


def test_git_works_in_a_container_and_commits_belong_to_the_user(docker: ContainerEngine, box: Sandbox) -> None:
    begin(box)
    box.git("pack-refs", "--all")
    script = (
        "echo one >one.txt; git add one.txt; git commit -qm 'Add one'; git stash list; echo two >one.txt; git stash; git stash drop;"
        " git branch side; git branch -D side; git rebase -q HEAD~0; git log --oneline | wc -l >count.txt"
    )
    workspace = new(box, f"{shell(script)} [[done: it is there]] [[wait]]")
    box.wait_until(lambda: box.session("s")["pr"], "the pull request", 60)
    counted = workspace / "count.txt"  # the script's last line: the pull request comes with its first commit
    box.wait_until(lambda: counted.exists() and counted.read_text(), "the script's end", 60)
    assert box.git("log", "-1", "--format=%s %an", box.session("s")["branch"]) == "Add one Person"
    assert (workspace / "one.txt").read_text() == "one\n" and counted.read_text().strip() == "2"
    assert {(workspace / name).stat().st_uid for name in ("one.txt", "count.txt")} == {os.getuid()}
    assert (
        docker.run("inspect", "--format", "{{.Config.User}}", container(docker, box)).strip()
        == f"{os.getuid()}:{os.getgid()}"
    )


def test_an_agent_cannot_write_git_configuration_or_read_the_users_files(docker: ContainerEngine, box: Sandbox) -> None:
    begin(box)
    (box.user_home / "diary.txt").write_text("dear diary")
    before = (box.repo / ".git" / "config").read_text()
    git = box.repo / ".git"
    tries = [
        f"cat {box.user_home}/diary.txt",
        f"ls {box.repo}/README.md",
        f"ls {box.home.path}/ao.db",
        f"cat {box.home.path}/token",
        "git config core.fsmonitor /tmp/evil",
        f"echo evil >{git}/hooks/post-checkout",
        f"echo evil >{git}/config",
        f"mv {git}/config {git}/gone",
        f"mkdir {git}/modules/evil",
        f"echo /tmp >{git}/objects/info/alternates",
        "rm -f .git",
        "mv .git gone",
        "echo gitdir: /tmp/evil >.git",
        "echo /tmp/evil >$(git rev-parse --git-dir)/commondir",
        "mv $(git rev-parse --git-dir) gone",
        f"ln -sf /etc/passwd {git}/HEAD",
        'ln -sf /etc/passwd "$(dirname "$AO_SPOOL")/task.md"',
        'rm "$AO_SPOOL"',
        'echo x >"$(dirname "$AO_SPOOL")/exit.1.json"',
        "mount -t tmpfs none /mnt",
    ]
    script = "; ".join(
        f"if ({command}) >/dev/null 2>&1; then echo {number} >>done.txt; fi" for number, command in enumerate(tries)
    )
    workspace = new(box, f"{shell(script + '; touch over.txt')} [[wait]]")
    box.wait_until((workspace / "over.txt").exists, "the end of it", 60)
    done = (workspace / "done.txt").read_text().split() if (workspace / "done.txt").exists() else []
    assert [tries[int(number)] for number in done] == []
    assert (git / "config").read_text() == before and not (git / "hooks" / "post-checkout").exists()


@pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
def test_git_filters_of_an_agents_submodule_do_not_run_outside(box: Sandbox) -> None:
    begin(box, "network: none")
    escaped = box.folder / "escaped"
    script = (
        "git init -q sub; cd sub; git config user.email a@b; git config user.name a;"
        f" git config filter.x.clean 'touch {escaped}; cat'; echo '* filter=x' >.gitattributes; echo one >file; git add -A;"
        " git commit -qm sub; cd ..; git add -A; git commit -qm work; echo two >sub/file"
    )
    new(box, f"{shell(script)} [[done: it is there]] [[wait]]")
    box.wait_until(lambda: box.session("s")["pr"], "the pull request", 60)
    box.ao("stop", "s")
    box.wait_until(lambda: box.session("s")["status"] == "stopped", "its stop", 30)
    assert not escaped.exists()


def test_no_secret_is_passed_to_the_engine(docker: ContainerEngine, box: Sandbox) -> None:
    begin(box, rest=f"    env: {{MY_API_KEY: {SECRET}}}\n")
    workspace = new(box, f"{shell('env >env.new; mv env.new env.txt')} [[wait]]")
    box.wait_until((workspace / "env.txt").exists)
    environment = dict(line.split("=", 1) for line in (workspace / "env.txt").read_text().splitlines() if "=" in line)
    assert environment["MY_API_KEY"] == SECRET and environment["AO_TOKEN"] and "LOGIN_SECRET_TOKEN" not in environment
    assert environment["HOME"].startswith(str(box.home.path)) and environment["PATH"].startswith("/usr/local/sbin")
    description = docker.run("inspect", container(docker, box))
    assert SECRET not in description and environment["AO_TOKEN"] not in description
    private = box.home.session(box.sessions()[0]["id"])
    assert not list(private.glob("*.sh"))
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(SECRET.encode() in line for line in lines)


class Quiet(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello from outside")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def outside() -> Iterator[int]:
    """The port of an HTTP server on all addresses of this machine."""
    server = http.server.ThreadingHTTPServer(("0.0.0.0", 0), Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


ASK = """
import json, os, socket, urllib.request
told = {}
def ask(name, url, **headers):
    try:
        told[name] = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=5).read().decode()[:40]
    except Exception as error:
        told[name] = repr(error)
def reach(name, *address):
    try:
        socket.create_connection(address, 3).close()
        told[name] = 'reached'
    except OSError as error:
        told[name] = repr(error)
ask('allowed', 'http://127.0.0.2:%(port)d/')
ask('other', 'http://127.0.0.3:%(port)d/')
ask('daemon', os.environ['AO_URL'] + '/api/sessions/' + os.environ['AO_SESSION'], Authorization='Bearer ' + os.environ['AO_TOKEN'])
reach('direct', '127.0.0.1', %(port)d)
reach('address', '%(address)s', %(port)d)
print(json.dumps(told))
"""


def address() -> str:
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            return "192.0.2.1"
        return str(probe.getsockname()[0])


def test_an_allowlist_permits_only_its_hosts_and_the_daemon(box: Sandbox, outside: int) -> None:
    begin(box, f"network: allowlist, allow: ['127.0.0.2:{outside}']")
    code = ASK % {"port": outside, "address": address()}
    workspace = new(box, f"{python(code)} [[wait]]")
    results = json.loads(answer(box, workspace))
    assert results["allowed"] == "hello from outside"
    assert "403" in results["other"]
    assert results["daemon"].startswith("{")
    assert "refused" in results["direct"] and results["address"] != "reached"
    log = box.home.session(box.sessions()[0]["id"]) / "network.log"
    assert f"refused 127.0.0.3:{outside}" in log.read_text()


def test_network_none_reaches_nothing(box: Sandbox, outside: int) -> None:
    begin(box, "network: none")
    workspace = new(box, f"{python(ASK % {'port': outside, 'address': address()})} [[wait]]")
    results = json.loads(answer(box, workspace))
    assert all("rror" in result for result in results.values())


def test_network_host_reaches_everything(box: Sandbox, outside: int) -> None:
    begin(box, "network: host")
    workspace = new(box, f"{python(ASK % {'port': outside, 'address': address()})} [[wait]]")
    results = json.loads(answer(box, workspace))
    assert results["direct"] == results["address"] == "reached" and results["daemon"].startswith("{")


def test_an_agent_that_runs_out_of_memory_fails_with_that_reason(box: Sandbox) -> None:
    begin(
        box,
        "memory: 64m, network: none",
        "agents:\n  eater:\n    tool: command\n    command: python3 -c 'x = bytearray(1 << 30)'\n",
    )
    box.ao("new", "eat", "--name", "s", "--agent", "eater")
    box.wait_until(lambda: box.session("s")["status"] == "failed", "its end", 60)
    assert "it ran out of memory (limit 64 MB)" in box.ao("why", "s").stdout


def test_the_agent_survives_a_killed_daemon(docker: ContainerEngine, box: Sandbox) -> None:
    begin(box, "network: none")
    workspace = new(box, "[[say: ready]]")
    box.wait_until(lambda: box.session("s")["activity"] == "idle")
    running = container(docker, box)
    box.stop(signal.SIGKILL)
    assert docker.run("inspect", "--format", "{{.State.Running}}", running).strip() == "true"
    box.start()
    box.ao("send", "s", shell("echo still here >here.txt"))
    box.wait_until((workspace / "here.txt").exists, "the message")
    assert container(docker, box) == running
    assert [event["type"] for event in box.events("s")].count("agent-launched") == 1


def test_a_killed_container_is_noticed_within_a_second(docker: ContainerEngine, box: Sandbox) -> None:
    begin(box, "network: none")
    new(box, "[[wait]]")
    running = container(docker, box)
    docker.run("kill", running)
    killed = time.monotonic()
    box.wait_until(lambda: box.session("s")["status"] == "failed", "its end")
    assert time.monotonic() - killed < 1.0
    assert box.session("s")["exitCode"] == 137


def test_the_terminal_works_again_after_a_restart_of_the_engine(docker: ContainerEngine, box: Sandbox) -> None:
    begin(box, "network: none")
    workspace = new(box, "[[say: ready]]")
    box.wait_until(lambda: box.session("s")["activity"] == "idle")
    docker.stop()
    docker.start()
    assert box.session("s")["activity"] == "idle"
    time.sleep(0.5)  # there is no signal when the engine's client is attached again
    box.ao("send", "s", shell("echo still here >here.txt"))
    box.wait_until((workspace / "here.txt").exists, "the message", 30)
    box.ao("stop", "s")
    box.wait_until(lambda: box.session("s")["status"] == "stopped", "its stop", 30)
    assert docker.containers() == []


def test_containers_left_by_a_killed_daemon_are_pruned_by_their_labels(docker: ContainerEngine, box: Sandbox) -> None:
    begin(box, "network: none")
    new(box, "[[wait]]")
    labels_json = docker.run("inspect", "--format", "{{json .Config.Labels}}", container(docker, box))
    labels = {**json.loads(labels_json), "agent-orchestrator.generation": "7"}
    options = [part for name, value in labels.items() for part in ("--label", f"{name}={value}")]
    docker.run("create", "--name", "left-behind", *options, IMAGE, "true")
    docker.run("create", "--name", "somebody-elses", IMAGE, "true")
    leftovers = box.json("prune", "--dry-run")["removed"]
    assert [leftover["kind"] for leftover in leftovers] == ["terminal"]
    box.ao("prune")
    assert "left-behind" not in docker.containers() and len(docker.containers()) == 2
    docker.run("rm", "somebody-elses")


def test_a_missing_image_is_a_one_line_error(box: Sandbox) -> None:
    begin(box)
    config = box.repo / "agent-orchestrator.yaml"
    config.write_text(config.read_text().replace(IMAGE, "localhost:1/no/such:image"))
    refused = box.ao("new", "[[wait]]", "--name", "s", check=False)
    line = refused.stderr.strip().splitlines()[-1]
    assert (
        refused.returncode and "the image localhost:1/no/such:image could not be had" in line and "docker.image" in line
    )


def test_a_dockerfile_is_built_once_per_version(docker: ContainerEngine, box: Sandbox) -> None:
    begin(box, "network: none")
    config = box.repo / "agent-orchestrator.yaml"
    config.write_text(config.read_text().replace(f"image: {IMAGE}", "dockerfile: box/Dockerfile"))
    (box.repo / "box").mkdir()
    file = box.repo / "box" / "Dockerfile"
    file.write_text(f"FROM {IMAGE}\nENV FROM_THE_IMAGE=1\n")
    workspace = new(box, f"{shell('env >env.new; mv env.new env.txt')} [[wait]]")
    box.wait_until((workspace / "env.txt").exists)
    assert "FROM_THE_IMAGE=1" in (workspace / "env.txt").read_text()
    first = docker.run("images", "--quiet", "agent-orchestrator/project").split()
    new(box, "[[wait]]", "t")
    assert docker.run("images", "--quiet", "agent-orchestrator/project").split() == first
    file.write_text(f"FROM {IMAGE}\nENV FROM_THE_IMAGE=2\n")
    other = new(box, f"{shell('env >env.new; mv env.new env.txt')} [[wait]]", "u")
    box.wait_until((other / "env.txt").exists)
    assert "FROM_THE_IMAGE=2" in (other / "env.txt").read_text()


def test_a_clone_works_and_its_git_configuration_is_protected(docker: ContainerEngine, box: Sandbox) -> None:
    begin(box, "network: none")
    script = (
        "echo one >one.txt; git add one.txt; git commit -qm 'Add one'; git config core.fsmonitor evil; mv .git gone"
    )
    box.ao("new", f"{shell(script)} [[done: it is there]] [[wait]]", "--name", "s", "--workspace", "clone")
    box.wait_until(lambda: box.session("s")["pr"], "the pull request", 60)
    assert box.git("log", "-1", "--format=%s", box.session("s")["branch"]) == "Add one"
    workspace = Path(box.session("s")["workspacePath"])
    assert "fsmonitor" not in (workspace / ".git" / "config").read_text() and not (workspace / "gone").exists()


def test_configured_mounts_are_available_in_the_container(box: Sandbox) -> None:
    box.user_home.mkdir(exist_ok=True)
    (box.user_home / ".npmrc").write_text("registry=here\n")
    (box.user_home / ".tool").mkdir()
    begin(box, "network: none, mounts: ['~/.npmrc', '~/.tool:rw']")
    script = "cp ~/.npmrc npmrc.txt; echo more >>~/.npmrc; echo login >~/.tool/login; touch over.txt"
    workspace = new(box, f"{shell(script)} [[wait]]")
    box.wait_until((workspace / "over.txt").exists, "the end of it")
    assert (workspace / "npmrc.txt").read_text() == (box.user_home / ".npmrc").read_text() == "registry=here\n"
    assert (box.user_home / ".tool" / "login").read_text() == "login\n"


def test_without_an_engine_a_session_is_refused_in_one_line(tmp_path: Path) -> None:
    with Sandbox(tmp_path, "docker", {"DOCKER_HOST": f"unix://{tmp_path}/none.sock", "CONTAINER_HOST": ""}) as box:
        box.env["PATH"] = f"{tmp_path}/bin:/usr/bin:/bin"
        (tmp_path / "bin").mkdir()
        for name in ("docker", "podman"):
            (tmp_path / "bin" / name).write_text("#!/bin/sh\necho 'it is not running' >&2\nexit 1\n")
            (tmp_path / "bin" / name).chmod(0o755)
        begin(box)
        done = box.ao("new", "[[wait]]", check=False)
        assert done.returncode and len(done.stderr.strip().splitlines()) <= 2
        assert "no container engine answers" in done.stderr and "runtime" in done.stderr
        line = next(line for line in box.ao("doctor", check=False).stdout.splitlines() if "containers" in line)
        assert "no container engine answers" in line
