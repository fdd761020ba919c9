"""Peers: adapter files, and the meter on a toy that is described by one."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.measure import Duel, LeftOut
from benchmarks.peers import running
from benchmarks.peers.adapter import Adapter, filled, load
from benchmarks.peers.place import OutOfTime, Place

TOY = r"""
import os, subprocess, sys
folder, command, *rest = sys.argv[1:]
pid, pipe = (os.path.join(folder, rest[0] + end) for end in (".pid", ".pipe")) if rest else ("", "")
if command == "spawn":
    os.mkfifo(pipe)
    agent = subprocess.Popen(["toy-agent"], stdin=os.open(pipe, os.O_RDWR), stdout=subprocess.DEVNULL)
    open(pid, "w").write(str(agent.pid))
    print("made number", rest[0])
elif command == "list":
    for name in sorted(os.listdir(folder)):
        if name.endswith(".pid"):
            number = open(os.path.join(folder, name)).read()
            try:
                state = open("/proc/" + number + "/stat").read().rpartition(")")[2].split()[0]
            except OSError:
                state = "Z"
            print(name[:-4], "gone" if state == "Z" else "runs")
elif command == "send":
    refused = os.path.join(folder, "refused")
    if not os.path.exists(refused):
        open(refused, "w").close()
        sys.exit("busy")
    open(pipe, "w").write(rest[1] + "\n")
elif command == "serve":
    import time
    while True:
        subprocess.run(["git", "--version"], stdout=subprocess.DEVNULL)
        time.sleep(0.05)
"""


def toy(command: str, *rest: str) -> list[str]:
    return [sys.executable, "-IS", "{folder}/toy.py", "{folder}", command, *rest]


ADAPTER = Adapter(
    name="toy",
    program="toy-agent",
    ready="ready",
    commands={
        "version": [sys.executable, "-c", "print('toy 1.2')"],
        "spawn": toy("spawn", "{name}"),
        "list": toy("list"),
        "send": toy("send", "{name}", "{text}"),
        "start": toy("serve"),
    },
    files={"{folder}/toy.py": TOY},
    alive=r"\b{name} runs",
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "QUIET", 0.0)
    monkeypatch.setattr(running, "WATCHED", 0.3)
    monkeypatch.setattr(running, "MANY", 3)
    monkeypatch.setattr(running, "TURNS", 1)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Place(ADAPTER, tmp_path / "toy", {}, time.monotonic() + 300) as here:
        here.start(60)
        yield here
    assert not here._processes()


def test_the_adapters_that_are_shipped_can_be_read() -> None:
    found = {path.stem: load(path) for path in running.HERE.glob("*.toml")}
    assert {"ours", "cli-agent-orchestrator", "ao-typescript"} <= set(found)
    values = {**running._values(found["ours"]), "name": "n", "text": "t"}
    known = {**values, **dict.fromkeys(("folder", "home", "repo", "bin", "port"), "x")}
    for one in found.values():
        texts = [word for command in (*one.commands.values(), *one.prepare, *one.install) for word in command]
        for text in (*texts, *one.files, *one.files.values(), *one.env.values(), one.alive, one.installed):
            filled(text, known)


def test_a_peer_is_installed_by_its_digests_alone() -> None:
    for path in running.HERE.glob("*.toml"):
        for command in load(path).install:
            if "install" in command:
                assert "--require-hashes" in command
                lock = Path(filled(command[-1], {"here": str(running.HERE)}))
                joined = lock.read_text().replace("\\\n", " ").splitlines()
                assert all("==" in line and "--hash=sha256:" in line for line in joined), lock


def test_a_key_that_means_nothing_and_a_name_that_nobody_knows_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text('name = "x"\n[agent]\nprogram = "a"\nready = "r"\n[commands]\nspwan = ["a"]\n')
    with pytest.raises(ValueError, match=r"other\.toml: spwan is not known; commands are version, start"):
        load(file)
    file.write_text('name = "x"\n[agent]\nprogram = "a"\n')
    with pytest.raises(ValueError, match="ready is missing"):
        load(file)
    with pytest.raises(ValueError, match=r"\{nmae\} is not known; there are name"):
        filled("a {nmae}", {"name": "x"})


def test_spawned_heard_and_ended_are_measured_by_the_agents_own_notes(place: Place) -> None:
    costs: running.Costs = {}
    running.a_few(place, costs)
    assert set(costs) == {running.SPAWN, running.SEND, running.EXIT}
    assert all(cost.value is not None and 0 < cost.value < 60 for cost in costs.values()), costs
    assert [note["text"] for note in place.notes("heard")][:2] == ["token-few0-0\n", "token-few0-1\n"]
    assert len(place.notes("started")) == 3


def test_many_and_what_they_cost_while_nothing_happens(place: Place) -> None:
    costs: running.Costs = {}
    running.many(place, costs)
    assert set(costs) == {running.SPAWNS, running.STATUS, running.CALLS, running.MEMORY}
    memory = costs[running.MEMORY].value
    assert memory is not None
    assert memory > 1
    assert (place.folder / "programs" / "git").is_symlink(), "the programs are themselves again"


def test_every_program_that_is_started_is_counted(place: Place) -> None:
    with place.counting() as calls:
        place.until(lambda: calls() > 2, 60, "the toy to call Git again and again")
    silent = replace(ADAPTER, commands={"start": ["sleep", "60"]})
    with Place(silent, place.folder / "silent", {}, time.monotonic() + 300) as other:
        other.start(60)
        with other.counting() as calls:
            assert calls() == 0


def test_what_is_never_done_within_the_limit_is_never(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    spawn = running.spawn
    monkeypatch.setattr(running, "LIMIT", 0.5)
    monkeypatch.setattr(running, "spawn", lambda place, names, _limit: spawn(place, names, 60))  # this is to be done
    place.adapter = replace(
        ADAPTER,
        commands={**ADAPTER.commands, "send": ["true"], "list": ["echo", "few0 runs, few1 runs, few2 runs"]},
    )
    costs: running.Costs = {}
    running.a_few(place, costs)
    assert costs[running.SPAWN].value is not None
    assert (costs[running.SEND].value, costs[running.EXIT].value) == (None, None)
    place.adapter = replace(ADAPTER, commands={**ADAPTER.commands, "spawn": ["false"]})
    assert spawn(place, ["x"], 0.2) is None


def test_a_session_that_the_peer_names_itself_is_found_in_what_it_prints(place: Place) -> None:
    place.adapter = replace(ADAPTER, session=r"made number (\S+)")
    assert running.spawn(place, ["seven"], 60) is not None
    (place.folder / "spawn-seven.out").write_text("made number 7\n")
    assert place.session("seven") == "7"


def test_a_server_that_ends_is_noticed_at_once(tmp_path: Path) -> None:
    dying = replace(ADAPTER, commands={"start": ["sh", "-c", "echo no such option; exit 3"], "answers": ["false"]})
    ended = pytest.raises(ChildProcessError, match="toy ended with 3: no such option")
    with Place(dying, tmp_path / "toy", {}, time.monotonic() + 300) as here, ended:
        here.start(60)


def test_when_the_time_for_peers_is_over_nothing_is_waited_for(tmp_path: Path) -> None:
    silent = replace(ADAPTER, commands={"answers": ["false"]})
    with Place(silent, tmp_path / "toy", {}, time.monotonic() - 1) as here, pytest.raises(OutOfTime):
        here.start(60)


def test_duels_of_all_cases_and_peers_that_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = replace(ADAPTER, name="ours")
    monkeypatch.setattr(running, "load", lambda _: ours)
    monkeypatch.setattr(running, "CACHE", tmp_path / "cache")
    offline = [[sys.executable, "-c", "import sys; sys.exit('no network')"]]
    others = [
        replace(ADAPTER, name="peer"),
        replace(ADAPTER, name="offline", install=offline, installed="{venv}/bin/x"),
        replace(ADAPTER, name="unasked", checkout="NO_SUCH_VARIABLE"),
        replace(ADAPTER, name="lacking", needs=["no-such-program"]),
        replace(ADAPTER, name="broken", prepare=[["false"]]),
    ]
    results = list(running.duels(tmp_path, others))
    left = {one.name: one.why for one in results if isinstance(one, LeftOut)}
    assert set(left) == {"offline", "unasked", "lacking", "broken, the rest"}
    assert left["offline"] == "it cannot be installed: no network"
    assert left["unasked"].startswith("not asked for: NO_SUCH_VARIABLE=")
    assert left["lacking"] == "there is no no-such-program here"
    played = [one for one in results if isinstance(one, Duel) and one.peer == "peer"]
    cases = [running.COLD, running.SPAWN, running.SEND, running.EXIT, running.SPAWNS, running.STATUS]
    assert [one.case for one in played] == [*cases, running.CALLS, running.MEMORY]
    assert played[0].note.startswith("peer toy 1.2, ")
    assert {one.unit for one in played} == {"s", "MB", "a minute"}
    with Place(ADAPTER, tmp_path / "after", {}, time.monotonic()) as here:
        here.folder = tmp_path
        assert not here._processes(), "nothing that was started runs on"
