"""Predicted conflicts: their speed and their agreement with real merges, in repositories made at random from a seed."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.changes.conflicts import Branch, RepositoryPrediction, is_lock_file
from benchmarks.measure import Figure, Growth, Result, quartiles

SIZES = (12, 25, 50)
"""Numbers of branches that are compared."""
UPDATE_COUNT = 7
_ENV = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    **{f"GIT_{role}_NAME": "n" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": "n@example.invalid" for role in ("AUTHOR", "COMMITTER")},
}


def git(folder: Path, *argv: str, stdin: bytes | None = None, check: bool = True) -> str:
    """Run a Git command and return its output."""
    process = subprocess.run(["git", *argv], cwd=folder, env=_ENV, input=stdin, check=check, capture_output=True)
    return process.stdout.decode(errors="surrogateescape").strip()


@dataclass
class RandomRepository:
    """A repository with branches, each in a worktree, and the random numbers that make them."""

    root: Path
    chance: random.Random
    branches: list[Branch] = field(default_factory=list)

    @property
    def repo(self) -> Path:
        """Return the main checkout."""
        return self.root / "repo"

    def prediction(self) -> RepositoryPrediction:
        """Return a new prediction for the repository."""
        return RepositoryPrediction(LocalHost(), self.repo / ".git", self.root / "work")

    def branch(self, name: str, start: str) -> Path:
        """Make a new branch in a new worktree; return the worktree."""
        path = self.root / "trees" / name
        git(self.repo, "worktree", "add", "-q", "--no-track", "-b", name, str(path), start)
        at = git(path, "rev-parse", "HEAD")
        self.branches.append(Branch(name, "main", at, at, path, float(len(self.branches))))
        return path


# -- Agreement with real merges ------------------------------------------------------------------------------------------


def make_small_repository(root: Path, seed: int, branches: int) -> RandomRepository:
    """Make a small repository with commits on main and branches with all kinds of changes to files."""
    world = RandomRepository(root, random.Random(seed))
    repo = world.repo
    repo.mkdir(parents=True)
    git(repo, "init", "-q", "-b", "main")
    for number in range(24):
        _write(repo / f"d{number % 6}" / f"s{number % 3}" / f"f{number}.py", _content(number))
    _write(repo / "package-lock.json", _content(99))
    _write(repo / ".gitattributes", "*.union merge=union\n")
    _write(repo / "notes.union", "one\n")
    _commit(repo, "start")
    for _ in range(6):
        _edit(world.chance, repo)
        _commit(repo, "on main")
    for number in range(branches):
        past = world.chance.choice([0, 0, 0, 1, 3, 6])
        path = world.branch(f"b{number:02}", f"main~{past}")
        for _ in range(world.chance.randint(1, 3)):
            _edit(world.chance, path)
            _commit(path, "work")
        if number and world.chance.random() < 0.15:
            other = world.chance.choice(["main", *(branch.session for branch in world.branches[:-1])])
            git(path, "merge", "-q", "--no-edit", other, check=False)
            git(path, "merge", "--abort", check=False)
        if world.chance.random() < 0.4:
            _edit(world.chance, path)
    return world


def disagreements(world: RandomRepository) -> list[str]:
    """Return a line per pair for which the prediction and a real merge differ. Commits uncommitted changes first."""
    predicted = asyncio.run(world.prediction().predict(world.branches, ()))
    by_sides = {pair.sides: pair for pair in predicted}
    differences = []
    for branch in world.branches:
        assert branch.workspace is not None
        _commit(branch.workspace, "uncommitted")
    for a, b in pairs_of(world.branches):
        failed, files = real_merge(world, a, b)
        pair = by_sides.get((a, b)) or by_sides.get((b, a))
        text = pair is not None and pair.kind == "text"
        if text != failed:
            differences.append(f"{a} and {b}: predicted {pair}, really {files}")
    return differences


def pairs_of(branches: Sequence[Branch]) -> list[tuple[str, str]]:
    """Return all pairs of branches."""
    names = [branch.session for branch in branches]
    return [(a, b) for index, a in enumerate(names) for b in names[index + 1 :]]


def real_merge(world: RandomRepository, a: str, b: str) -> tuple[bool, list[str]]:
    """Run `git merge`; return whether it fails on anything but lock files, and the conflicting files."""
    scratch = world.root / "scratch"
    if not scratch.exists():
        git(world.repo, "worktree", "add", "-q", "--detach", str(scratch), "main")
    git(scratch, "checkout", "-q", "--detach", a)
    process = subprocess.run(
        ["git", "merge", "-q", "--no-edit", b], cwd=scratch, env=_ENV, check=False, capture_output=True
    )
    unmerged = git(scratch, "diff", "--name-only", "--diff-filter=U", "-z").split("\0")
    files = sorted(name for name in unmerged if name)
    git(scratch, "reset", "-q", "--hard")
    git(scratch, "clean", "-qfdx")
    locks_only = bool(files) and all(map(is_lock_file, files))
    return process.returncode != 0 and not locks_only, files


def _content(seed: int) -> str:
    chance = random.Random(seed)
    parts = []
    for number in range(4):
        body = "\n".join(f"    x{chance.randrange(1000)} = {chance.randrange(1000)}" for _ in range(6))
        parts.append(f"def f{number}():\n{body}\n    return {number}\n")
    return "\n\n".join(parts)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _commit(folder: Path, message: str) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)


def _edit(random_: random.Random, folder: Path) -> None:
    """Make one to four random changes of any kind."""
    for _ in range(random_.randint(1, 4)):
        files = sorted(path for path in folder.rglob("*.py") if path.is_file())
        kind = random_.random()
        if not files or kind < 0.1:
            _write(
                folder / f"d{random_.randrange(6)}" / f"new{random_.randrange(4)}.py", _content(random_.randrange(4))
            )
        elif kind < 0.18:
            random_.choice(files).unlink()
        elif kind < 0.26:
            moved = random_.choice(files)
            moved.rename(moved.with_name(f"moved{random_.randrange(6)}.py"))
        elif kind < 0.32:
            _move_folder(random_, folder)
        elif kind < 0.36:
            file = random_.choice(files)
            file.unlink()
            _write(file / "inner.py", _content(random_.randrange(5)))
        elif kind < 0.42:
            lock = folder / "package-lock.json"
            lock.write_text(lock.read_text().replace("=", f"{random_.randrange(9)}=", 1))
        elif kind < 0.46:
            with (folder / "notes.union").open("a") as file_:
                file_.write(f"{random_.randrange(100)}\n")
        elif kind < 0.5:
            random_.choice(files).write_bytes(random_.randbytes(200))
        else:
            _change_lines(random_, random_.choice(files))


def _move_folder(chance: random.Random, folder: Path) -> None:
    source, target = folder / f"d{chance.randrange(6)}", folder / f"e{chance.randrange(3)}"
    if source.is_dir() and not target.exists():
        source.rename(target)


def _change_lines(chance: random.Random, file: Path) -> None:
    lines = file.read_bytes().split(b"\n")
    place = chance.randrange(len(lines))
    lines[place : place + chance.randint(0, 2)] = [b"    y = %d" % chance.randrange(1000)] * chance.randint(0, 2)
    file.write_bytes(b"\n".join(lines))


# -- Speed -----------------------------------------------------------------------------------------------------------------


def make_large_repository(root: Path, files: int, commits: int, branches: int, seed: int = 1) -> RandomRepository:
    """Make a repository of many files and commits, and branches off its last fifty commits with commits and uncommitted changes."""
    world = RandomRepository(root, random.Random(seed))
    chance, repo = world.chance, world.repo
    repo.mkdir(parents=True)
    git(repo, "init", "-q", "-b", "main")
    paths = [f"p{number // 500}/q{number % 500 // 20}/f{number}.py" for number in range(files)]
    git(repo, "fast-import", "--quiet", stdin=_stream(chance, paths, commits))
    git(repo, "reset", "-q", "--hard")
    hot = chance.sample(paths, files // 20)
    for number in range(branches):
        path = world.branch(f"b{number:02}", f"main~{chance.randrange(50)}")
        for _ in range(3):
            for file in chance.sample(hot, 3):
                _change_lines(chance, path / file)
            git(path, "commit", "-qam", "work")
        _change_lines(chance, path / chance.choice(hot))
        _write(path / "p0" / f"mine{number}.py", _content(number))
    return world


def _stream(chance: random.Random, paths: Sequence[str], commits: int) -> bytes:
    out = []
    for number in range(commits):
        changed = paths if not number else chance.sample(paths, 3)
        out.append(f"commit refs/heads/main\ncommitter n <n@example.invalid> {number + 1} +0000\ndata 1\nx\n")
        for path in changed:
            text = _content(chance.randrange(10_000))
            out.append(f"M 100644 inline {path}\ndata {len(text)}\n{text}\n")
    return "".join(out).encode()


def measure_conflicts(folder: Path) -> Iterator[Result]:
    """Measure the prediction of all pairs of branches, and again after a commit; compare it with real merges."""
    yield from asyncio.run(
        _speed(make_large_repository(folder / "large", 2000, 500, SIZES[-1]), "2,000 files, 500 commits")
    )
    yield _agreement(folder, 2)


def measure_conflicts_large(folder: Path) -> Iterator[Result]:
    """Measure the same in a larger repository, with more real merges."""
    yield from asyncio.run(
        _speed(make_large_repository(folder / "large", 5000, 2000, SIZES[-1]), "5,000 files, 2,000 commits")
    )
    yield _agreement(folder, 5)


def _agreement(folder: Path, seeds: int) -> Figure:
    pairs, differences = 0, []
    for seed in range(seeds):
        small = make_small_repository(folder / f"small{seed}", seed, 15)
        pairs += len(pairs_of(small.branches))
        differences += disagreements(small)
    note = "; ".join(differences[:3])
    return Figure(f"predictions that {pairs} real merges disagree with", len(differences), 0, "pairs", note=note)


async def _speed(world: RandomRepository, what: str) -> Sequence[Result]:
    by_pairs, by_branches = list[tuple[float, float]](), list[tuple[float, float]]()
    for size in SIZES:
        outlook, branches = world.prediction(), world.branches[:size]
        begun = time.perf_counter()
        pairs = await outlook.predict(branches, ())
        full = time.perf_counter() - begun
        moves = [await _time_after_commit(world, outlook, branches, number) for number in range(UPDATE_COUNT)]
        by_pairs.append((len(pairs_of(branches)), full))
        by_branches.append((size, statistics.median(moves)))
    single = by_branches[-1][1]
    counts = [sum(pair.kind == kind for pair in pairs) for kind in ("text", "overlap")]
    note = f"{what}: {counts[0]} conflicts, {counts[1]} overlaps"
    worst_note = f"worst of {UPDATE_COUNT} {max(moves):.2f} s"
    ratio_note = f"{single * 1e3:.0f} ms ÷ {full * 1e3:.0f} ms"
    return [
        Figure(f"every two of {SIZES[-1]} branches predicted", full, 5, "s", note=note, stretch=2.5),
        Growth("every two branches predicted", "pairs", by_pairs, "s", "linear"),
        Figure(
            "the same after one head moved", single, 0.3, "s", note=worst_note, stretch=0.1, spread=quartiles(moves)
        ),
        Figure("one head moved ÷ all", single / full, 0.2, note=ratio_note, stretch=0.1),
        Growth("predicted after one head moved", "branches", by_branches, "s", "linear"),
    ]


async def _time_after_commit(
    world: RandomRepository, outlook: RepositoryPrediction, branches: Sequence[Branch], number: int
) -> float:
    """Add a commit, and every other time an uncommitted change; return the seconds of the new prediction."""
    branch = world.chance.choice(branches)
    assert branch.workspace is not None
    git(branch.workspace, "add", "-A")
    git(branch.workspace, "commit", "-q", "--allow-empty", "-m", "more")
    if number % 2:
        _change_lines(world.chance, branch.workspace / "p1" / "q1" / "f520.py")
    begun = time.perf_counter()
    await outlook.predict(branches, {branch.session})
    return time.perf_counter() - begun
