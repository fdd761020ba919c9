"""Sessions on a node of the cluster, with one real worker that was started by hand: they behave as local ones do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from agent_orchestrator.testing.terminals import PersonsTerminal, wait_until_true

CONFIG = """\
cluster: {home: HOME, lease: 30s, checkpoint: 1s, resources: {cpus: 0.1, memory: 10m}, maxParallelAgents: 3}
"""


class Cluster:
    """A daemon, and a worker that may be killed and started again."""

    def __init__(self, box: Sandbox) -> None:
        self.box = box
        node = box.json("nodes", "add", "n1")
        self.home, self.url = Path(node["home"]), node["url"]
        self.env = {**box.env, "AO_NODE_TOKEN": node["token"]}
        del self.env["AO_HOME"]
        self.worker = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "agent_orchestrator.cluster.node.worker", "--url", self.url, "--name", "n1"]
        devnull = subprocess.DEVNULL
        argv += ["--home", str(self.home), "--label", "region=here"]
        self.worker = subprocess.Popen(argv, env=self.env, stdin=devnull, stdout=devnull, stderr=devnull)
        self.box.wait_until(lambda: self.node()["state"] in ("ready", "draining"), "the node")
        return self.worker

    def node(self) -> dict[str, Any]:
        nodes = [node for node in self.box.json("nodes")["nodes"] if node["name"] == "n1"]
        return nodes[0] if nodes else {"state": "none"}

    def kill(self) -> None:
        self.worker.kill()
        self.worker.wait()

    def session(self, name: str) -> dict[str, Any]:
        return self.box.session(f"app-{name}")

    def until(self, name: str, *statuses: str) -> dict[str, Any]:
        return self.box.wait_until(
            lambda: now if (now := self.session(name))["status"] in statuses else {}, f"{name} to be {statuses}"
        )

    def refs(self, name: str) -> list[str]:
        """Return the refs of a session in the main repository, without its branch."""
        refs = self.box.git("for-each-ref", "--format=%(refname)", "refs/ao").split()
        return [ref.removeprefix("refs/ao/") for ref in refs if ref.endswith(f"app-{name}") and "landing" not in ref]

    def saved(self, name: str, file: str) -> str:
        """Return the content of a file in a session's last checkpoint, or "" if it has none."""
        try:
            return self.box.git("show", f"refs/ao/checkpoint/app-{name}:{file}")
        except subprocess.CalledProcessError:
            return ""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with Sandbox(folder, "process") as box:
        box.home.path.mkdir(parents=True)
        box.home.config.write_text(CONFIG.replace("HOME", str(folder / "node")))
        box.repository()
        box.start()
        cluster = Cluster(box)
        try:
            yield cluster
        finally:
            for session in box.sessions():
                if session["status"] not in ("merged", "stopped"):
                    box.ao("stop", session["id"], check=False)
            cluster.kill()


def test_a_change_made_on_a_node_is_merged_locally(cluster: Cluster) -> None:
    box = cluster.box
    box.ao("new", "--node", "n1", "--name", "lands", "[[write: a.txt|one]] [[commit: first]] [[done: ready]]")
    session = cluster.until("lands", "review_pending")
    assert (session["node"], session["runtime"]) == ("n1", "ray")
    assert session["workspacePath"] == str(cluster.home / "worktrees" / "app" / "lands")
    assert not (box.repo / ".worktrees").exists() and not (box.home.worktrees / "app").exists()
    assert "+one" in box.ao("diff", "lands").stdout
    assert cluster.node()["sessions"] == ["app-lands"] and cluster.node()["labels"] == {"region": "here"}
    sent = box.json("send", "lands", "--wait", "[[edit: a.txt|two]] [[commit: second]] [[done: again]]")
    assert sent["state"] == "acknowledged"
    box.wait_until(lambda: "two" in box.git("show", "feature/lands:a.txt"), "the second commit here")
    head = box.git("rev-parse", "feature/lands")
    box.wait_until(lambda: cluster.session("lands")["head"] == head, "it to be known")
    cluster.until("lands", "review_pending")
    assert box.ao("sh", "lands", "--", "git", "log", "--format=%s", "-2").stdout.split() == ["second", "first"]
    assert "ao sh app-lands -- CMD" in box.ao("sh", "app-lands", check=False).stderr
    assert "[[" not in box.ao("logs", "lands").stdout.splitlines()[0]
    box.ao("merge", "lands")
    assert box.git("show", "main:a.txt").split() == ["one", "two"]
    box.wait_until(lambda: not Path(session["workspacePath"]).exists(), "the workspace to go")
    box.wait_until(lambda: cluster.refs("lands") == [], "all its refs to be removed")
    box.wait_until(lambda: cluster.node()["sessions"] == [], "the node to be free")


def test_uncommitted_work_on_a_node_is_saved_locally_and_restored(cluster: Cluster) -> None:
    box = cluster.box
    task = "[[write: loose.txt|kept]] [[sh: git stash list]] [[wait]]"
    box.ao("new", "--runtime", "ray", "--name", "saved", task)
    path = Path(cluster.until("saved", "idle", "needs_input", "working")["workspacePath"])
    box.wait_until(lambda: (path / "loose.txt").exists(), "its file")
    box.wait_until(lambda: cluster.saved("saved", "loose.txt") == "kept", "a checkpoint with it")
    assert "checkpoint/app-saved" in cluster.refs("saved")
    output = box.ao("stop", "saved").stdout
    assert "1 untracked file: refs/ao/rescue/app-saved" in output
    assert cluster.refs("saved") == ["rescue/app-saved"] and not path.exists()
    assert cluster.session("saved")["node"] is None
    box.ao("restore", "saved")
    box.wait_until(lambda: (path / "loose.txt").exists(), "its work")
    assert cluster.session("saved")["node"] == "n1"
    box.ao("stop", "saved")


@pytest.mark.anyio
async def test_a_person_can_attach_to_the_terminal_of_a_session_on_a_node(cluster: Cluster) -> None:
    box = cluster.box
    box.ao("new", "--runtime", "ray", "--name", "seen", "[[say: here I am]]")
    ao = ["env", "-C", str(box.repo), f"AO_HOME={box.home.path}", sys.executable, "-m", "agent_orchestrator"]
    person = PersonsTerminal([*ao, "attach", "app-seen"])
    try:
        await wait_until_true(lambda: b"here I am" in person.output)
        person.type(b"[[say: and here you are]]\r")
        await wait_until_true(lambda: "\n  and here you are" in box.ao("logs", "seen").stdout)
        await wait_until_true(lambda: person.output.count(b"and here you are") > 1)
    finally:
        await person.close()
    box.ao("stop", "seen")


def test_agents_on_a_node_survive_crashes_of_the_worker_and_the_daemon(cluster: Cluster) -> None:
    box = cluster.box
    box.ao("new", "--runtime", "ray", "--name", "lives", "[[say: at rest]]")
    agent = cluster.until("lives", "idle", "needs_input")["pid"]
    cluster.kill()
    box.wait_until(lambda: cluster.node()["state"] == "unreachable", "it to be missed")
    box.wait_until(lambda: "node n1 is unreachable since" in box.ao("why", "lives").stdout, "the reason to be shown")
    sent = box.json("send", "lives", "[[say: heard]]")
    cluster.start()
    path = f"/api/sessions/app-lives/messages/{box.json('send', 'lives', '[[say: again]]')['messageId']}"
    box.wait_until(lambda: box.request("GET", path)["state"] == "acknowledged", "an answer")
    port = int(cluster.url.rpartition(":")[2])
    box.stop(signal.SIGKILL)
    box.start(port=port)
    box.wait_until(lambda: cluster.node()["state"] == "ready", "the node to come back")
    assert box.json("send", "lives", "--wait", "[[say: once more]]")["state"] == "acknowledged"
    os.kill(agent, 0)
    log = box.home.terminal_log("app-lives")
    box.wait_until(lambda: "  once more\n" in log.read_text(), "the last answer")
    output = log.read_text()
    assert [output.count(f"  {answer}\n") for answer in ("heard", "again", "once more")] == [1, 1, 1], (sent, output)
    assert not [event for event in box.events("app-lives") if event["type"] == "agent-lost"]
    box.ao("stop", "lives")


def _is_waiting(line: str, go_on: Path) -> bool:
    """Return whether the line says that the drain waits for a turn; if so, let the agent end it."""
    is_waiting = "app-moves waits for the end of its turn" in line
    if is_waiting:
        go_on.touch()
    return is_waiting


def test_a_node_is_drained_and_used_again(cluster: Cluster) -> None:
    box = cluster.box
    go_on = box.folder / "go-on"
    task = "[[write: a.txt|one]] [[commit: first]] [[write: loose.txt|two]]"
    task += f" [[sh: until test -e {go_on}; do sleep 0.1; done]] [[done: over]]"
    box.ao("new", "--runtime", "ray", "--name", "moves", task)
    session = cluster.session("moves")
    argv = [sys.executable, "-m", "agent_orchestrator", "drain", "n1"]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, cwd=box.repo, env=box.env, stdout=pipe, stderr=pipe, text=True) as draining:
        assert draining.stderr is not None
        assert [line for line in draining.stderr if _is_waiting(line, go_on)], "it did not wait"
        assert draining.stdout is not None and "n1 is drained" in draining.stdout.read()
    assert not Path(session["workspacePath"]).exists() and cluster.node()["state"] == "draining"
    box.wait_until(lambda: cluster.session("moves")["waitingFor"] == "a node: n1 is being drained", "it to wait")
    assert box.git("show", "refs/ao/rescue/app-moves:loose.txt") == "two"
    assert box.ao("new", "--runtime", "ray", "--name", "later", "x", "--no-wait").returncode == 0
    box.wait_until(lambda: cluster.session("later")["waitingFor"] == "a node: n1 is being drained", "the other to wait")
    box.ao("stop", "later")
    box.ao("drain", "n1", "--undo")
    box.wait_until(lambda: cluster.session("moves")["node"] == "n1" and cluster.session("moves")["pid"], "it to go on")
    assert (Path(session["workspacePath"]) / "loose.txt").read_text().strip() == "two"
    box.wait_until(lambda: "resumed" in box.ao("logs", "moves").stdout, "its agent to say so")
    box.ao("stop", "moves")


def test_impossible_requests_for_nodes_are_refused_in_one_line(cluster: Cluster) -> None:
    box = cluster.box

    def refusal(*argv: str) -> str:
        result = box.ao(*argv, check=False)
        assert result.returncode in (2, 3) and result.stderr.count("\n") == 1
        return result.stderr

    assert refusal("new", "--node", "n9", "x") == "ao: no node n9: known: n1; see them: ao nodes\n"
    assert "--node is for the runtime ray" in refusal("new", "--node", "n1", "--runtime", "process", "x")
    assert "works in a clone" in refusal("new", "--runtime", "ray", "--workspace", "worktree", "x")
    assert "no node n9" in refusal("drain", "n9")
    assert "name" in refusal("nodes", "add", "../etc")
    assert box.ao("api", "GET", "/api/completion/nodes").stdout.split() == ["n1"]


def test_a_nodes_token_opens_its_link_and_nothing_else(cluster: Cluster) -> None:
    import urllib.error
    import urllib.request

    token = cluster.env["AO_NODE_TOKEN"]
    for path in ("/api/sessions", "/api/nodes", "/git/app.git/info/refs?service=git-upload-pack"):
        request = urllib.request.Request(f"{cluster.url}{path}", headers={"Authorization": f"Bearer {token}"})
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(request, timeout=60)
        assert error.value.code == 403
        error.value.close()
