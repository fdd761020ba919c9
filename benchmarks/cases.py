"""The cases. Each gets a folder of its own and yields figures."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import quote

from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.collisions import predicting
from benchmarks.dashboard import dashboard
from benchmarks.forging import forging
from benchmarks.growing import answering, growing
from benchmarks.measure import Figure, children_started, cpu_seconds, interleaved, resident, timed
from benchmarks.queueing import landing
from benchmarks.reaching import reaching
from benchmarks.scheduling import scheduling
from benchmarks.storing import storing

RUNTIME = "tmux"
READY = "[[say: ready]]"


def command_line(folder: Path) -> Iterator[Figure]:
    """How long a person waits for `ao status`."""
    with Sandbox(folder, RUNTIME) as box:
        box.repository()
        box.start()
        _spawn(box, 50)
        ao = [str(Path(sys.executable).with_name("ao")), "status"]
        bare = [sys.executable, "-c", "import click, socket, json"]
        ours, limit = interleaved(20, lambda: _run(box, ao), lambda: _run(box, bare))
        yield Figure(
            "`ao status`, 50 sessions ÷ bare imports",
            ours / limit,
            2,
            note=f"{ours * 1e3:.0f} ms ÷ {limit * 1e3:.0f} ms",
        )
        version = [ao[0], "--version"]
        ours, limit = interleaved(10, lambda: _run(box, version), lambda: _run(box, bare))
        yield Figure("`ao --version` ÷ bare imports", ours / limit, 1.5, note=f"{ours * 1e3:.0f} ms")


def spawning(folder: Path) -> Iterator[Figure]:
    """From the request to the agent's running process, beside bare Git and tmux; the first and the fiftieth alike."""
    with Sandbox(folder, RUNTIME) as box:
        box.repository()
        box.start()
        bare_socket = folder / "bare.sock"
        counter = iter(range(10_000))
        _together(box, ["warm-up"])
        _bare_spawn(box, bare_socket, next(counter))

        def ours() -> None:
            name = f"s{next(counter)}"
            box.request("POST", "/api/sessions", {"prompt": READY, "name": name})
            with box.client() as client, client.stream("GET", f"/api/sessions/app-{name}/wait") as stream:
                stream.read()

        def bare() -> None:
            _bare_spawn(box, bare_socket, next(counter))

        first = interleaved(10, ours, bare)
        yield Figure(
            "1st–10th spawn ÷ bare Git + tmux",
            first[0] / first[1],
            3,
            note=f"{first[0] * 1e3:.0f} ms ÷ {first[1] * 1e3:.0f} ms",
        )
        interleaved(30, ours, bare)
        last = interleaved(10, ours, bare)
        yield Figure(
            "41st–50th spawn ÷ bare Git + tmux",
            last[0] / last[1],
            3,
            note=f"{last[0] * 1e3:.0f} ms ÷ {last[1] * 1e3:.0f} ms",
        )
        subprocess.run(["tmux", "-S", str(bare_socket), "kill-server"], check=False, capture_output=True)


def twenty_at_once(folder: Path, repetitions: int = 50) -> Iterator[Figure]:
    """Twenty sessions asked for at once: all run and have their prompt, beside the time of one; none is ever lost."""
    ratios, lost = [], 0
    for home in range(repetitions // 10):
        with Sandbox(folder / str(home), RUNTIME) as box:
            box.repository()
            box.start()
            _together(box, ["warm-up"])
            for number in range(10):
                alone = timed(partial(_together, box, [f"a{number}"]))
                names = [f"r{number}-{index}" for index in range(20)]
                ratios.append(timed(partial(_together, box, names)) / alone)
                running = {one["name"]: one for one in box.sessions()}
                lost += sum(running[name]["status"] != "idle" for name in names)
                _stop(box, [*names, f"a{number}"])
    ratios.sort()
    yield Figure(
        "20 sessions at once ÷ one alone (median)",
        ratios[len(ratios) // 2],
        6,
        note=f"worst of {repetitions}: {ratios[-1]:.1f}",
    )
    yield Figure(f"sessions lost in {repetitions} × 20", lost, 0, "lost")


def idle(folder: Path, seconds: float = 60.0) -> Iterator[Figure]:
    """Fifty sessions that wait: what the daemon does meanwhile."""
    with Sandbox(folder, RUNTIME) as box:
        box.repository()
        pid = box.start()
        _spawn(box, 50)
        time.sleep(3)
        with children_started(pid) as children:
            used = cpu_seconds(pid)
            time.sleep(seconds)
            used = cpu_seconds(pid) - used
            started = children()
        yield Figure("subprocesses of the daemon a minute, 50 idle sessions", started, 0, "started")
        yield Figure("CPU of the daemon, 50 idle sessions", 100 * used / seconds, 1, "%")
        yield Figure("resident memory of the daemon, 50 sessions", resident(pid), 110, "MB")


def seen(folder: Path) -> Iterator[Figure]:
    """How soon an agent's exit and a line in its spool are shown."""
    with Sandbox(folder, RUNTIME) as box:
        box.repository()
        box.start()
        exits, lines = [], []
        for number in range(15):
            name = f"x{number}"
            box.request("POST", "/api/sessions", {"prompt": READY, "name": name})
            box.until(partial(_is, box, name, "status", "idle"), f"{name} to be ready")
            spool = box.home.session(f"app-{name}") / "spool.1.jsonl"
            report = json.dumps({"event": "usage", "input": number + 1}) + "\n"
            with spool.open("a") as file:
                file.write(report)
            usage = {"input": number + 1, "output": 0, "usd": None}
            lines.append(timed(partial(box.until, partial(_is, box, name, "usage", usage))))
            os.kill(box.session(name)["pid"], 9)
            exits.append(timed(partial(box.until, partial(_is, box, name, "exitCode", 137))))
        yield Figure("agent's exit → shown (worst of 15)", max(exits), 0.5, "s")
        yield Figure("spool line → shown (worst of 15)", max(lines), 0.1, "s")


def serving(folder: Path, seconds: float = 4.0) -> Iterator[Figure]:
    """How often a second the list of fifty sessions is served, the daemon kept to one core."""
    with Sandbox(folder, RUNTIME) as box:
        box.repository()
        pid = box.start()
        _spawn(box, 50)
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(pid, {cores[0]})
        os.sched_setaffinity(0, {cores[-1]})
        try:
            rate = _requests(box, seconds)
        finally:
            os.sched_setaffinity(0, set(cores))
        yield Figure("`GET /api/sessions`, 50 sessions", rate, 1000, "a second", at_least=True)


def _requests(box: Sandbox, seconds: float) -> float:
    request = b"GET /api/sessions?all=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    counts = [0] * 4
    end = time.monotonic() + seconds

    def ask(index: int) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(box.home.socket("daemon.sock")))
            reader = connection.makefile("rb")
            while time.monotonic() < end:
                connection.sendall(request)
                length = 0
                while (line := reader.readline()) != b"\r\n":
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                reader.read(length)
                counts[index] += 1

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(counts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def _run(box: Sandbox, command: list[str]) -> None:
    subprocess.run(command, cwd=box.repo, env=box.env, stdout=subprocess.DEVNULL, check=True)


def _is(box: Sandbox, name: str, key: str, value: object) -> bool:
    return bool(box.session(name)[key] == value)


def _spawn(box: Sandbox, count: int) -> None:
    for number in range(count):
        box.request("POST", "/api/sessions", {"prompt": READY, "name": f"n{number}"})
    box.until(lambda: sum(one["status"] == "idle" for one in box.sessions()) >= count, f"{count} idle sessions", 120)


def _together(box: Sandbox, names: list[str]) -> None:
    """Ask for all at once, and wait until each agent has taken its prompt up and says that it is idle."""
    wanted = {f"app-{name}" for name in names}
    accept = {"Accept": "text/event-stream"}
    with box.client() as client, client.stream("GET", "/api/events", headers=accept, timeout=120) as told:
        body = [{"prompt": READY, "name": name} for name in names]
        threads = [threading.Thread(target=box.request, args=("POST", "/api/sessions", one)) for one in body]
        for thread in threads:
            thread.start()
        while wanted and (news := told.event()) is not None:
            event = json.loads(news.data)
            if event["source"] == "spool" and event["data"].get("state") == "idle":
                wanted.discard(event["session"])
        for thread in threads:
            thread.join()


def _stop(box: Sandbox, names: list[str]) -> None:
    threads = [threading.Thread(target=box.request, args=("DELETE", f"/api/sessions/{quote(name)}")) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _bare_spawn(box: Sandbox, server: Path, number: int) -> None:
    """What Git and tmux take by themselves."""
    path = box.folder / "bare" / f"w{number}"
    box.git("worktree", "add", "-q", "--no-track", "-b", f"bare/{number}", str(path), "main")
    subprocess.run(
        [
            "tmux",
            "-S",
            str(server),
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-s",
            f"b{number}",
            "-c",
            str(path),
            "sleep",
            "600",
        ],
        check=True,
        env=box.env,
    )


CASES: dict[str, Callable[[Path], Iterator[Figure]]] = {
    "command-line": command_line,
    "spawning": spawning,
    "twenty-at-once": twenty_at_once,
    "idle": idle,
    "seen": seen,
    "serving": serving,
    "predicting": predicting,
    "landing": landing,
    "reaching": reaching,
    "forging": forging,
    "growing": growing,
    "answering": answering,
    "dashboard": dashboard,
    "scheduling": scheduling,
    "storing": storing,
}
