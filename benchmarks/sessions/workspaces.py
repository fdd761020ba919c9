"""Workspaces of large repositories: a hundred thousand files, a part of them, and folders such as `node_modules` beside them."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path

from agent_orchestrator.base.git.settings import PARALLEL_CHECKOUT
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.workspaces.clone import Clone
from agent_orchestrator.plugins.workspaces.file_copy import Copier
from agent_orchestrator.plugins.workspaces.git_workspace import GitWorkspace
from agent_orchestrator.plugins.workspaces.worktree import Worktree
from agent_orchestrator.protocols import WorkspaceSpec
from agent_orchestrator.protocols.host import Completed
from benchmarks.measure import Figure, Growth, LeftOut, Result, ratios, timed

SIZES = {1_000: 5, 10_000: 3, 100_000: 2}
"""Files → how often it is measured."""
LARGE = max(SIZES)
ENOUGH = 45.0
"""Seconds after which no further turn is begun: a slow disk is measured less often."""
ON_DISK = 10_000
MODULES = 20_000
ROOM = 4 << 30
"""Bytes that the largest takes, with some to spare."""
_TEXT = "".join(f"    return the {number}th line of a file of two kilobytes\n" for number in range(40))
_BARE_COMMANDS = {"worktree", "reset"}


def repositories(folder: Path) -> Iterator[Result]:
    """Making a workspace beside a bare `git worktree add`, whole and sparse, and filling it with copies."""
    with _in_memory(folder) as place:
        bench = _Bench(place)
        whole, own, clones = [], [], []
        for files, repetitions in SIZES.items():
            repo = make_repository(place / f"repo-{files}", files)
            rows = bench.measured(repo, repetitions, sparse=files == LARGE)
            median = {name: statistics.median(row) for name, row in rows.items()}
            whole.append((files, median["ours"]))
            clones.append((files, median["clone"]))
            own.append((files, min(rows["own"]) * 1e3))  # whatever else runs only adds to it
            if files == LARGE:
                yield from _beside_bare(rows, median)
        yield Growth("a workspace made", "files", whole, "s", "linear")
        yield Growth("a clone made", "files", clones, "s", "linear")
        yield Growth("of that, beside `git worktree add` and its checkout", "files", own, "ms", "constant", floor=60.0)
    yield _workers(folder)
    yield from _copies(folder)


def _workers(folder: Path) -> Figure:
    """What several processes that write files are worth on this disk."""
    repo, bench = make_repository(folder / "repo", ON_DISK), _Bench(folder)
    rows = bench.in_turns(
        {"one": partial(bench.bare, repo), "several": partial(bench.bare, repo, PARALLEL_CHECKOUT)}, 3
    )
    value, spread = ratios(rows["several"], rows["one"])
    return Figure(
        f"`git worktree add`, {ON_DISK:,} files on disk, {PARALLEL_CHECKOUT} ÷ by one process",
        value,
        2.0,
        stretch=0.9,
        spread=spread,
        note=f"{statistics.median(rows['several']):.2f} s ÷ {statistics.median(rows['one']):.2f} s",
        why="several processes write no more than the disk, or the cores, take",
    )


@contextlib.contextmanager
def _in_memory(folder: Path) -> Iterator[Path]:
    """A folder on no disk, where there is one with room: 100,000 files tell more of the disk, and who else uses it, than of us."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or shutil.disk_usage(memory).free < ROOM:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="ao-bench-", dir=memory) as place:
        yield Path(place)


def make_repository(path: Path, files: int) -> Path:
    """A repository with one commit, a hundred files a folder, a hundred folders a package."""
    stream = io.BytesIO()
    stream.write(b"commit refs/heads/main\ncommitter bench <bench@example.org> 1700000000 +0000\ndata 5\nmade\n")
    for number in range(files):
        content = f"file {number}\n{_TEXT}".encode()
        place = f"package{number // 10_000}/part{number // 100}/file{number}.txt"
        stream.write(b"M 100644 inline %s\ndata %d\n%s\n" % (place.encode(), len(content), content))
    _git("init", "-q", "--bare", "-b", "main", str(path))
    subprocess.run(["git", "-C", str(path), "fast-import", "--quiet"], input=stream.getvalue(), check=True)
    return path


def _beside_bare(rows: Mapping[str, Sequence[float]], median: Mapping[str, float]) -> Iterator[Result]:
    value, spread = ratios(rows["ours"], rows["bare"])
    at = f"{LARGE:,} files"
    yield Figure(
        f"a workspace, {at} ÷ bare `git worktree add`",
        value,
        1.5,
        stretch=1.1,
        spread=spread,
        note=f"{median['ours']:.2f} s ÷ {median['bare']:.2f} s",
        why="Git writes the files, by as many processes as there are cores; on few cores, or where others use the disk, that is no faster",
    )
    value, spread = ratios(rows["sparse"], rows["bare"])
    yield Figure(
        f"a sparse workspace, 1 of {LARGE // 10_000} packages ÷ bare and whole",
        value,
        0.5,
        stretch=0.25,
        spread=spread,
        note=f"{median['sparse']:.2f} s; its index knows all {at}",
        why="a tenth of the files is written, and an index of all of them",
    )


class _Bench:
    """One after the other: what is made is removed at once, for the disk's sake."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count(1)
        self._host = _Meter()

    def measured(self, repo: Path, repetitions: int, *, sparse: bool) -> dict[str, list[float]]:
        """Times of each kind; `own` is what a workspace takes beside what bare Git does too."""
        own: list[float] = []

        def ours() -> float:
            took = self._ours(repo, Worktree)
            own.append(took - self._host.spent)
            return took

        works: dict[str, Callable[[], float]] = {
            "bare": partial(self.bare, repo),
            "ours": ours,
            "clone": partial(self._ours, repo, Clone),
        }
        if sparse:
            works["sparse"] = partial(self._ours, repo, Worktree, ("package3",))
        return {**self.in_turns(works, repetitions), "own": own}

    def in_turns(self, works: Mapping[str, Callable[[], float]], repetitions: int) -> dict[str, list[float]]:
        """What each says that it took."""
        rows: dict[str, list[float]] = {name: [] for name in works}
        end = time.monotonic() + ENOUGH
        for turn in range(repetitions):
            if turn and time.monotonic() > end:
                break
            for name, work in works.items():
                rows[name].append(work())
        return rows

    def bare(self, repo: Path, setting: str = "gc.auto=0") -> float:
        number = next(self._numbers)
        path = self._folder / "bare" / str(number)
        words = ("-c", setting, "-C", str(repo), "worktree", "add", "-q", "--no-track", "-b", f"bare/{number}")
        took = timed(lambda: _git(*words, str(path), "main"))
        shutil.rmtree(path)
        return took

    def _ours(self, repo: Path, kind: type[GitWorkspace], sparse: tuple[str, ...] = ()) -> float:
        number = next(self._numbers)
        plugin = kind({}, self._host)
        spec = WorkspaceSpec(
            session=f"s{number}",
            repo=repo,
            path=self._folder / "ours" / str(number),
            link=None,
            private=self._folder / "private" / str(number),
            branch=f"feature/{number}",
            base="main",
            sparse=sparse,
        )
        self._host.spent = 0.0

        async def made() -> float:
            begun = time.perf_counter()
            await plugin.create(spec, lambda _line: None)
            return time.perf_counter() - begun

        took = asyncio.run(made())
        asyncio.run(plugin.remove(spec))
        return took


class _Meter(LocalHost):
    """This machine, with a clock on what a bare `git worktree add` does too."""

    spent = 0.0

    async def run(self, argv: Sequence[str], **options: object) -> Completed:
        begun = time.perf_counter()
        done = await super().run(argv, **options)  # type: ignore[arg-type]
        if _BARE_COMMANDS & set(argv):
            self.spent += time.perf_counter() - begun
        return done


def _copies(folder: Path) -> Iterator[Result]:
    """A folder of twenty thousand files, by us and by `cp`: where the file system can, copy-on-write."""
    what = f"`copy` of {MODULES:,} files"
    with _reflinks(folder) as disk:
        place = disk or folder
        make_modules(place / "checkout" / "node_modules", MODULES)
        rows = _copied(place, 3)
        value, spread = ratios(rows["ours"], rows["plain"])
        yield Figure(
            f"{what}{', copy-on-write (XFS)' if disk else ''} ÷ a plain `cp -a`",
            value,
            2.0,
            stretch=1.0,
            spread=spread,
            note=f"{statistics.median(rows['ours']):.2f} s ÷ {statistics.median(rows['plain']):.2f} s",
            why="the files are small: opening and making each takes longer than its bytes, and `cp` does it without an interpreter",
        )
        if disk:
            value, spread = ratios(rows["room ours"], rows["room plain"])
            note = f"{statistics.median(rows['room ours']):.0f} MB ÷ {statistics.median(rows['room plain']):.0f} MB"
            yield Figure(
                f"{what}, copy-on-write: room on the disk ÷ a plain one's", value, 0.25, spread=spread, note=note
            )
        else:
            yield LeftOut(f"{what}, copy-on-write", "no XFS can be made and mounted here: that needs xfsprogs and root")


def _copied(place: Path, repetitions: int) -> dict[str, list[float]]:
    """Seconds and megabytes of copies, made in turns."""
    checkout, copies = place / "checkout", place / "copies"
    rows: dict[str, list[float]] = {"ours": [], "plain": [], "room ours": [], "room plain": []}
    plain = ["cp", "-a", "--reflink=never", str(checkout / "node_modules"), str(copies)]
    end = time.monotonic() + ENOUGH / 2
    for turn in range(repetitions):
        if turn and time.monotonic() > end:
            break
        for name in ("ours", "plain"):
            copies.mkdir()
            before = _taken(place)
            work = partial(Copier(checkout, copies, []).copy, checkout / "node_modules")
            rows[name].append(timed(work if name == "ours" else partial(subprocess.run, plain, check=True)))
            rows[f"room {name}"].append(max(_taken(place) - before, 1e-3))
            shutil.rmtree(copies)
    return rows


def _taken(disk: Path) -> float:
    """Megabytes in use."""
    subprocess.run(["sync", "-f", str(disk)], check=True)
    found = os.statvfs(disk)
    return (found.f_blocks - found.f_bfree) * found.f_frsize / 1e6


def make_modules(folder: Path, files: int) -> None:
    """Many small files in many folders, and a few large ones, as package managers leave them."""
    text = (_TEXT * 4).encode()
    for number in range(files):
        place = folder / f"package{number // 40}" / ("lib" if number % 2 else "dist")
        place.mkdir(parents=True, exist_ok=True)
        (place / f"file{number}.js").write_bytes(b"// %d\n%s" % (number, text))
    for number in range(20):
        (folder / f"package{number}" / "native.node").write_bytes(bytes([number]) * 5_000_000)


@contextlib.contextmanager
def _reflinks(folder: Path) -> Iterator[Path | None]:
    """A file system that can share blocks between files; none where it cannot be mounted."""
    image, place = folder / "xfs.img", folder / "xfs"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(4 << 30)
    try:
        for command in (["mkfs.xfs", "-q", "-m", "reflink=1", image], ["mount", "-o", "loop", image, place]):
            subprocess.run([str(word) for word in command], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        yield None
        return
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def _git(*words: str) -> None:
    subprocess.run(["git", *words], check=True, capture_output=True)
