"""Peers: adapter files, and the meter on a toy that is described by one."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.measure import Duel, SkippedResult
from benchmarks.peers import duels
from benchmarks.peers.adapter import Adapter, fill, load
from benchmarks.peers.environment import OutOfTime, PeerEnvironment

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
    monkeypatch.setattr(duels, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(duels, "SAMPLE_SECONDS", 0.3)
    monkeypatch.setattr(duels, "MANY_SESSIONS", 3)
    monkeypatch.setattr(duels, "TURNS", 1)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[PeerEnvironment]:
    with PeerEnvironment(ADAPTER, tmp_path / "toy", {}, time.monotonic() + 300) as here:
        here.start(60)
        yield here
    assert not here._processes()


def test_the_shipped_adapters_can_be_read() -> None:
    adapters = {path.stem: load(path) for path in duels.FOLDER.glob("*.toml")}
    assert {"ours", "cli-agent-orchestrator", "ao-typescript"} <= set(adapters)
    values = {**duels._values(adapters["ours"]), "name": "n", "text": "t"}
    all_values = {**values, **dict.fromkeys(("folder", "home", "repo", "bin", "port"), "x")}
    for adapter in adapters.values():
        texts = [
            word for command in (*adapter.commands.values(), *adapter.prepare, *adapter.install) for word in command
        ]
        for text in (
            *texts,
            *adapter.files,
            *adapter.files.values(),
            *adapter.env.values(),
            adapter.alive,
            adapter.installed,
        ):
            fill(text, all_values)


def test_a_peer_is_installed_from_hashed_requirements_only() -> None:
    for path in duels.FOLDER.glob("*.toml"):
        for command in load(path).install:
            if "install" in command:
                assert "--require-hashes" in command
                lock = Path(fill(command[-1], {"here": str(duels.FOLDER)}))
                requirements = lock.read_text().replace("\\\n", " ").splitlines()
                assert all("==" in line and "--hash=sha256:" in line for line in requirements), lock


def test_unknown_keys_and_unknown_placeholders_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text('name = "x"\n[agent]\nprogram = "a"\nready = "r"\n[commands]\nspwan = ["a"]\n')
    with pytest.raises(ValueError, match=r"other\.toml: spwan is not known; commands are version, start"):
        load(file)
    file.write_text('name = "x"\n[agent]\nprogram = "a"\n')
    with pytest.raises(ValueError, match="ready is missing"):
        load(file)
    with pytest.raises(ValueError, match=r"\{nmae\} is not known; there are name"):
        fill("a {nmae}", {"name": "x"})


def test_spawn_send_and_exit_are_measured_by_the_agents_own_log(place: PeerEnvironment) -> None:
    costs: duels.Costs = {}
    duels.play_few(place, costs)
    assert set(costs) == {duels.SPAWN_CASE, duels.SEND_CASE, duels.EXIT_CASE}
    assert all(cost.value is not None and 0 < cost.value < 60 for cost in costs.values()), costs
    assert [note["text"] for note in place.notes("heard")][:2] == ["token-few0-0\n", "token-few0-1\n"]
    assert len(place.notes("started")) == 3


def test_many_sessions_and_their_idle_costs_are_measured(place: PeerEnvironment) -> None:
    costs: duels.Costs = {}
    duels.play_many(place, costs)
    assert set(costs) == {duels.SPAWN_MANY_CASE, duels.STATUS_CASE, duels.PROGRAM_STARTS_CASE, duels.MEMORY_CASE}
    memory = costs[duels.MEMORY_CASE].value
    assert memory is not None
    assert memory > 1
    assert (place.folder / "programs" / "git").is_symlink(), "the programs are themselves again"


def test_every_started_program_is_counted(place: PeerEnvironment) -> None:
    with place.count_programs() as calls:
        place.wait_until(lambda: calls() > 2, 60, "the toy to call Git again and again")
    silent = replace(ADAPTER, commands={"start": ["sleep", "60"]})
    with PeerEnvironment(silent, place.folder / "silent", {}, time.monotonic() + 300) as other:
        other.start(60)
        with other.count_programs() as calls:
            assert calls() == 0


def test_what_does_not_happen_within_the_limit_has_no_value(
    place: PeerEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn = duels.spawn
    monkeypatch.setattr(duels, "TIME_LIMIT", 0.5)
    monkeypatch.setattr(duels, "spawn", lambda place, names, _limit: spawn(place, names, 60))  # this is to be done
    place.adapter = replace(
        ADAPTER,
        commands={**ADAPTER.commands, "send": ["true"], "list": ["echo", "few0 runs, few1 runs, few2 runs"]},
    )
    costs: duels.Costs = {}
    duels.play_few(place, costs)
    assert costs[duels.SPAWN_CASE].value is not None
    assert (costs[duels.SEND_CASE].value, costs[duels.EXIT_CASE].value) == (None, None)
    place.adapter = replace(ADAPTER, commands={**ADAPTER.commands, "spawn": ["false"]})
    assert spawn(place, ["x"], 0.2) is None


def test_a_session_id_that_the_peer_assigns_is_read_from_its_output(place: PeerEnvironment) -> None:
    place.adapter = replace(ADAPTER, session=r"made number (\S+)")
    assert duels.spawn(place, ["seven"], 60) is not None
    (place.folder / "spawn-seven.out").write_text("made number 7\n")
    assert place.session("seven") == "7"


def test_a_server_that_exits_is_noticed_at_once(tmp_path: Path) -> None:
    dying = replace(ADAPTER, commands={"start": ["sh", "-c", "echo no such option; exit 3"], "answers": ["false"]})
    ended = pytest.raises(ChildProcessError, match="toy ended with 3: no such option")
    with PeerEnvironment(dying, tmp_path / "toy", {}, time.monotonic() + 300) as here, ended:
        here.start(60)


def test_after_the_time_limit_for_all_peers_nothing_waits(tmp_path: Path) -> None:
    silent = replace(ADAPTER, commands={"answers": ["false"]})
    with PeerEnvironment(silent, tmp_path / "toy", {}, time.monotonic() - 1) as here, pytest.raises(OutOfTime):
        here.start(60)


def test_duels_cover_all_cases_and_name_the_peers_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = replace(ADAPTER, name="ours")
    monkeypatch.setattr(duels, "load", lambda _: ours)
    monkeypatch.setattr(duels, "CACHE", tmp_path / "cache")
    offline = [[sys.executable, "-c", "import sys; sys.exit('no network')"]]
    others = [
        replace(ADAPTER, name="peer"),
        replace(ADAPTER, name="offline", install=offline, installed="{venv}/bin/x"),
        replace(ADAPTER, name="unasked", checkout="NO_SUCH_VARIABLE"),
        replace(ADAPTER, name="lacking", needs=["no-such-program"]),
        replace(ADAPTER, name="broken", prepare=[["false"]]),
    ]
    results = list(duels.compare(tmp_path, others))
    reasons = {result.name: result.why for result in results if isinstance(result, SkippedResult)}
    assert set(reasons) == {"offline", "unasked", "lacking", "broken, the rest"}
    assert reasons["offline"] == "it cannot be installed: no network"
    assert reasons["unasked"].startswith("not asked for: NO_SUCH_VARIABLE=")
    assert reasons["lacking"] == "there is no no-such-program here"
    peer_duels = [result for result in results if isinstance(result, Duel) and result.peer == "peer"]
    cases = [
        duels.COLD_START_CASE,
        duels.SPAWN_CASE,
        duels.SEND_CASE,
        duels.EXIT_CASE,
        duels.SPAWN_MANY_CASE,
        duels.STATUS_CASE,
    ]
    assert [result.case for result in peer_duels] == [*cases, duels.PROGRAM_STARTS_CASE, duels.MEMORY_CASE]
    assert peer_duels[0].note.startswith("peer toy 1.2, ")
    assert {result.unit for result in peer_duels} == {"s", "MB", "a minute"}
    with PeerEnvironment(ADAPTER, tmp_path / "after", {}, time.monotonic()) as here:
        here.folder = tmp_path
        assert not here._processes(), "nothing that was started runs on"
