"""Workspaces of large repositories: 100,000 files, sparse checkouts, and copied folders such as `node_modules`."""

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

from agent_orchestrator.base.git.settings import PARALLEL_CHECKOUT_CONFIG
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.workspaces.clone import CloneWorkspace
from agent_orchestrator.plugins.workspaces.copy_on_write import Copier
from agent_orchestrator.plugins.workspaces.git_workspace import GitWorkspace
from agent_orchestrator.plugins.workspaces.worktree import WorktreeWorkspace
from agent_orchestrator.protocols import WorkspaceSpec
from agent_orchestrator.protocols.host import ProgramResult
from benchmarks.measure import Figure, Growth, Result, SkippedResult, ratios, timed

SIZES = {1_000: 5, 10_000: 3, 100_000: 2}
"""Files → how often it is measured."""
LARGEST_SIZE = max(SIZES)
MAX_SECONDS = 45.0
"""Seconds after which no further turn is started, so that a slow disk is measured less often."""
ON_DISK_FILES = 10_000
MODULE_FILES = 20_000
NEEDED_BYTES = 4 << 30
"""Bytes that the largest repository needs, with a reserve."""
_TEXT = "".join(f"    return the {number}th line of a file of two kilobytes\n" for number in range(40))
_BARE_COMMANDS = {"worktree", "reset"}


def measure_workspaces(folder: Path) -> Iterator[Result]:
    """Measure making a workspace, full and sparse, compared with a bare `git worktree add`, and copying folders into it."""
    with _in_memory(folder) as root:
        bench = _WorkspaceTimer(root)
        whole, beside_git, clones = [], [], []
        for files, repetitions in SIZES.items():
            repo = make_repository(root / f"repo-{files}", files)
            rows = bench.measure(repo, repetitions, sparse=files == LARGEST_SIZE)
            median = {name: statistics.median(row) for name, row in rows.items()}
            whole.append((files, median["ours"]))
            clones.append((files, median["clone"]))
            beside_git.append((files, min(rows["own"]) * 1e3))  # whatever else runs only adds to it
            if files == LARGEST_SIZE:
                yield from _compare_with_bare(rows, median)
        yield Growth("a workspace made", "files", whole, "s", "linear")
        yield Growth("a clone made", "files", clones, "s", "linear")
        yield Growth(
            "of that, beside `git worktree add` and its checkout", "files", beside_git, "ms", "constant", floor=60.0
        )
    yield _workers(folder)
    yield from _copies(folder)


def _workers(folder: Path) -> Figure:
    """Return how much faster several writing processes are on this disk."""
    repo, bench = make_repository(folder / "repo", ON_DISK_FILES), _WorkspaceTimer(folder)
    rows = bench.in_turns(
        {"one": partial(bench.bare, repo), "several": partial(bench.bare, repo, PARALLEL_CHECKOUT_CONFIG)}, 3
    )
    value, spread = ratios(rows["several"], rows["one"])
    return Figure(
        f"`git worktree add`, {ON_DISK_FILES:,} files on disk, {PARALLEL_CHECKOUT_CONFIG} ÷ by one process",
        value,
        2.0,
        stretch=0.9,
        spread=spread,
        note=f"{statistics.median(rows['several']):.2f} s ÷ {statistics.median(rows['one']):.2f} s",
        why="several processes write no more than the disk, or the cores, take",
    )


@contextlib.contextmanager
def _in_memory(folder: Path) -> Iterator[Path]:
    """Yield a folder in memory if there is room: on a disk, 100,000 files would measure the disk and its other users."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or shutil.disk_usage(memory).free < NEEDED_BYTES:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="ao-bench-", dir=memory) as path_in_memory:
        yield Path(path_in_memory)


def make_repository(path: Path, files: int) -> Path:
    """Make a repository with one commit, 100 files per folder and 100 folders per package."""
    stream = io.BytesIO()
    stream.write(b"commit refs/heads/main\ncommitter bench <bench@example.org> 1700000000 +0000\ndata 5\nmade\n")
    for number in range(files):
        content = f"file {number}\n{_TEXT}".encode()
        place = f"package{number // 10_000}/part{number // 100}/file{number}.txt"
        stream.write(b"M 100644 inline %s\ndata %d\n%s\n" % (place.encode(), len(content), content))
    _git("init", "-q", "--bare", "-b", "main", str(path))
    subprocess.run(["git", "-C", str(path), "fast-import", "--quiet"], input=stream.getvalue(), check=True)
    return path


def _compare_with_bare(rows: Mapping[str, Sequence[float]], median: Mapping[str, float]) -> Iterator[Result]:
    value, spread = ratios(rows["ours"], rows["bare"])
    at = f"{LARGEST_SIZE:,} files"
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
        f"a sparse workspace, 1 of {LARGEST_SIZE // 10_000} packages ÷ bare and whole",
        value,
        0.5,
        stretch=0.25,
        spread=spread,
        note=f"{median['sparse']:.2f} s; its index knows all {at}",
        why="a tenth of the files is written, and an index of all of them",
    )


class _WorkspaceTimer:
    """Times workspaces one by one; each is removed right after, to save disk space."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count(1)
        self._host = _MeteredHost()

    def measure(self, repo: Path, repetitions: int, *, sparse: bool) -> dict[str, list[float]]:
        """Return the times of each kind; `own` is the time of a workspace without its Git commands."""
        own: list[float] = []

        def ours() -> float:
            seconds = self._ours(repo, WorktreeWorkspace)
            own.append(seconds - self._host.git_seconds)
            return seconds

        works: dict[str, Callable[[], float]] = {
            "bare": partial(self.bare, repo),
            "ours": ours,
            "clone": partial(self._ours, repo, CloneWorkspace),
        }
        if sparse:
            works["sparse"] = partial(self._ours, repo, WorktreeWorkspace, ("package3",))
        return {**self.in_turns(works, repetitions), "own": own}

    def in_turns(self, works: Mapping[str, Callable[[], float]], repetitions: int) -> dict[str, list[float]]:
        """Return the times that each function returns, called in turns."""
        rows: dict[str, list[float]] = {name: [] for name in works}
        end = time.monotonic() + MAX_SECONDS
        for turn in range(repetitions):
            if turn and time.monotonic() > end:
                break
            for name, work in works.items():
                rows[name].append(work())
        return rows

    def bare(self, repo: Path, setting: str = "gc.auto=0") -> float:
        number = next(self._numbers)
        path = self._folder / "bare" / str(number)
        options = ("-c", setting, "-C", str(repo), "worktree", "add", "-q", "--no-track", "-b", f"bare/{number}")
        seconds = timed(lambda: _git(*options, str(path), "main"))
        shutil.rmtree(path)
        return seconds

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
        self._host.git_seconds = 0.0

        async def create() -> float:
            started_at = time.perf_counter()
            await plugin.create(spec, lambda _line: None)
            return time.perf_counter() - started_at

        seconds = asyncio.run(create())
        asyncio.run(plugin.remove(spec))
        return seconds


class _MeteredHost(LocalHost):
    """The local host, which adds up the time of the Git commands of a bare `git worktree add`."""

    git_seconds = 0.0

    async def run(self, argv: Sequence[str], **options: object) -> ProgramResult:
        started_at = time.perf_counter()
        completed = await super().run(argv, **options)  # type: ignore[arg-type]
        if _BARE_COMMANDS & set(argv):
            self.git_seconds += time.perf_counter() - started_at
        return completed


def _copies(folder: Path) -> Iterator[Result]:
    """Measure copies of a folder of 20,000 files by us and by `cp`, copy-on-write if the file system can do it."""
    title = f"`copy` of {MODULE_FILES:,} files"
    with _reflinks(folder) as disk:
        root = disk or folder
        make_modules(root / "checkout" / "node_modules", MODULE_FILES)
        rows = _time_copies(root, 3)
        value, spread = ratios(rows["ours"], rows["plain"])
        yield Figure(
            f"{title}{', copy-on-write (XFS)' if disk else ''} ÷ a plain `cp -a`",
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
                f"{title}, copy-on-write: room on the disk ÷ a plain one's", value, 0.25, spread=spread, note=note
            )
        else:
            yield SkippedResult(
                f"{title}, copy-on-write", "no XFS can be made and mounted here: that needs xfsprogs and root"
            )


def _time_copies(root: Path, repetitions: int) -> dict[str, list[float]]:
    """Return the seconds and megabytes of copies made in turns."""
    checkout, copies = root / "checkout", root / "copies"
    rows: dict[str, list[float]] = {"ours": [], "plain": [], "room ours": [], "room plain": []}
    plain = ["cp", "-a", "--reflink=never", str(checkout / "node_modules"), str(copies)]
    end = time.monotonic() + MAX_SECONDS / 2
    for turn in range(repetitions):
        if turn and time.monotonic() > end:
            break
        for name in ("ours", "plain"):
            copies.mkdir()
            before = _used_megabytes(root)
            work = partial(Copier(checkout, copies, []).copy, checkout / "node_modules")
            rows[name].append(timed(work if name == "ours" else partial(subprocess.run, plain, check=True)))
            rows[f"room {name}"].append(max(_used_megabytes(root) - before, 1e-3))
            shutil.rmtree(copies)
    return rows


def _used_megabytes(disk: Path) -> float:
    """Return the megabytes in use on a file system."""
    subprocess.run(["sync", "-f", str(disk)], check=True)
    statistics = os.statvfs(disk)
    return (statistics.f_blocks - statistics.f_bfree) * statistics.f_frsize / 1e6


def make_modules(folder: Path, files: int) -> None:
    """Make many small files in many folders and a few large ones, as package managers do."""
    text = (_TEXT * 4).encode()
    for number in range(files):
        package_folder = folder / f"package{number // 40}" / ("lib" if number % 2 else "dist")
        package_folder.mkdir(parents=True, exist_ok=True)
        (package_folder / f"file{number}.js").write_bytes(b"// %d\n%s" % (number, text))
    for number in range(20):
        (folder / f"package{number}" / "native.node").write_bytes(bytes([number]) * 5_000_000)


@contextlib.contextmanager
def _reflinks(folder: Path) -> Iterator[Path | None]:
    """Yield the mount point of a file system with copy-on-write, or None if it cannot be mounted."""
    image, mount_point = folder / "xfs.img", folder / "xfs"
    mount_point.mkdir()
    with image.open("wb") as file:
        file.truncate(4 << 30)
    try:
        for command in (["mkfs.xfs", "-q", "-m", "reflink=1", image], ["mount", "-o", "loop", image, mount_point]):
            subprocess.run([str(word) for word in command], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        yield None
        return
    try:
        yield mount_point
    finally:
        subprocess.run(["umount", str(mount_point)], check=True)


def _git(*words: str) -> None:
    subprocess.run(["git", *words], check=True, capture_output=True)
