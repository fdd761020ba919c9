"""The faults, by name. Each is injected while people use the product, lasts a while and is undone; it detects whether it had an effect."""

from __future__ import annotations

import contextlib
import os
import random
import re
import resource
import signal
import sqlite3
import struct
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults import evidence
from tests.faults.play import FaultWorld

Pause = Callable[[float], None]

DISK_FULL_TEXT = re.compile(r"No space left|disk is full|could not be written|disk I/O error|Errno 28", re.IGNORECASE)
READ_ONLY_TEXT = re.compile(r"[Rr]ead-only|Errno 30|readonly")
NO_DESCRIPTORS_TEXT = re.compile(r"Too many open files|Errno 24|unable to open database", re.IGNORECASE)
GIT_LOCK_TEXT = re.compile(r"\.lock|could not lock|holds the lock")
DATABASE_LOCK_TEXT = re.compile(r"database is locked")


class InjectedFault:
    """A fault in one round; `bit` is whether it had an effect."""

    styles: tuple[str, ...] = ("plain", "local", "github")
    runtimes: tuple[str, ...] = ("process", "tmux")
    needs_disk = False
    effect_text: re.Pattern[str] | None = None
    """What the log, the events or an answer contain if the fault had an effect."""

    def __init__(self, world: FaultWorld, chance: random.Random) -> None:
        self.world = world
        self.random = chance
        self.notes: list[str] = []
        self.had_effect = False

    def inject(self) -> None:
        """Begin the fault."""

    def duration(self) -> float:
        """Return how many seconds it lasts."""
        return 0.0

    def watch(self) -> None:
        """Observe; called repeatedly while it lasts."""

    def restore(self) -> None:
        """End the fault."""

    def trigger_recovery(self) -> bool:
        """Trigger recovery that takes longer than a round; return False if there is none."""
        return False

    def detect_effect(self, text: str) -> None:
        """Detect an effect in the text of logs, events and answers."""
        if self.effect_text is not None and self.effect_text.search(text):
            self.had_effect = True

    def _kill(self, pids: list[int]) -> None:
        if pids:
            pid = self.random.choice(sorted(pids))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.had_effect = True
                self.notes.append(str(pid))


class KillDaemon(InjectedFault):
    def inject(self) -> None:
        self._kill(self.world.launcher.live())


class KillAgent(InjectedFault):
    def inject(self) -> None:
        self._kill([pid for pids in evidence.live_agents(self.world).values() for pid in pids])


class KillTerminal(InjectedFault):
    """Its agents end and end their Git; a Git that has just started may leave its lock, which a person removes."""

    def restore(self) -> None:
        if self.had_effect:
            self.notes += remove_git_locks(self.world)


class KillHolder(KillTerminal):
    runtimes = ("process",)

    def inject(self) -> None:
        self._kill(evidence.holders(self.world))


class KillTmux(KillTerminal):
    runtimes = ("tmux",)

    def inject(self) -> None:
        self._kill(evidence.tmux_servers(self.world))


class KillGit(InjectedFault):
    """Kill a Git command of the daemon; a person removes its locks, as Git demands."""

    def inject(self) -> None:
        remaining, end = self.random.randint(0, 4), time.monotonic() + 1.5
        last = 0
        while time.monotonic() < end:
            pid = running_git(self.world)
            if pid is not None and pid != last:
                last = pid
                remaining -= 1
                if remaining < 0:
                    with contextlib.suppress(OSError):
                        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                        os.kill(pid, signal.SIGKILL)
                        self.had_effect = True
                        self.notes.append(b" ".join(command[10:16]).decode(errors="replace"))
                    return
            time.sleep(0.0005)

    def duration(self) -> float:
        return self.random.uniform(0.0, 1.0)

    def restore(self) -> None:
        if self.had_effect:
            self.notes += remove_git_locks(self.world)


class DiskFull(InjectedFault):
    needs_disk = True
    effect_text = DISK_FULL_TEXT

    def inject(self) -> None:
        assert self.world.disk is not None
        self.world.disk.fill(self.random.choice((0, 0, 4096, 16384, 65536)))

    def duration(self) -> float:
        return self.random.uniform(0.3, 1.5)

    def restore(self) -> None:
        assert self.world.disk is not None
        self.world.disk.restore()
        remove_git_locks(self.world)


class DiskReadOnly(InjectedFault):
    """A Git that has a lock cannot remove it then, so a person does."""

    needs_disk = True
    effect_text = READ_ONLY_TEXT

    def inject(self) -> None:
        assert self.world.disk is not None
        home, repo = self.world.box.home.path, self.world.box.repo
        for part in self.random.choice(((home,), (repo,), (home, repo))):
            self.world.disk.make_read_only(part)
            self.notes.append(part.name)

    def duration(self) -> float:
        return self.random.uniform(0.3, 1.5)

    def restore(self) -> None:
        assert self.world.disk is not None
        self.world.disk.restore()
        remove_git_locks(self.world)


class ClockJump(InjectedFault):
    def inject(self) -> None:
        jump = self.random.choice((-86400.0, -3600.0, -90.0, -3.0, 5.0, 90.0, 3600.0, 86400.0))
        self.world.clock.set_offset(self.world.clock.offset + jump)
        self.had_effect = True
        self.notes.append(f"{jump:+.0f} s")


class ForgeSlow(InjectedFault):
    styles = ("github",)

    def inject(self) -> None:
        assert self.world.forge is not None
        seconds = self.random.uniform(0.2, 3.0)
        self.world.forge.ask("fail", "slow", self.random.randint(2, 12), {"seconds": seconds})

    def duration(self) -> float:
        return self.random.uniform(0.5, 2.0)

    def restore(self) -> None:
        assert self.world.forge is not None
        self.had_effect = self.world.forge.ask("clear_faults") > 0


class ForgeFailing(ForgeSlow):
    def inject(self) -> None:
        assert self.world.forge is not None
        what = self.random.choice((500, 502, 503, 401, 404, 422, "drop", "cut", "html", "secondary"))
        more: dict[str, object] = {"retry_after": 1} if what == "secondary" else {}
        if self.random.random() < 0.3:
            more["path"] = r"^/acme/"  # only Git
        self.world.forge.ask("fail", what, self.random.randint(2, 30), more)
        self.notes.append(f"{what} {more}")


class ForgeAway(ForgeSlow):
    """The forge does not listen."""

    def inject(self) -> None:
        assert self.world.forge is not None
        self.world.forge.ask("down")
        self.had_effect = True

    def restore(self) -> None:
        assert self.world.forge is not None
        self.world.forge.ask("up")


class WebhooksLost(InjectedFault):
    styles = ("github",)
    order = "lost"

    def inject(self) -> None:
        assert self.world.forge is not None
        self.world.forge.ask("hooks", self.order)

    def duration(self) -> float:
        return self.random.uniform(0.5, 2.0)

    def restore(self) -> None:
        assert self.world.forge is not None
        self.had_effect = self.world.forge.ask("hooks", "") > 0

    def trigger_recovery(self) -> bool:
        """Restart the daemon: while webhooks arrive, lost ones are found only by a poll every ten minutes, or by the first one."""
        if self.order == "lost":
            self.world.restart()
        return self.order == "lost"


class WebhooksDoubled(WebhooksLost):
    order = "doubled"


class WebhooksReordered(WebhooksLost):
    order = "reordered"


class DatabaseLocked(InjectedFault):
    effect_text = DATABASE_LOCK_TEXT

    def inject(self) -> None:
        self._base: sqlite3.Connection | None = None
        self._seconds = self.random.choice((0.3, 0.8, 1.5, 5.8))
        with contextlib.suppress(sqlite3.Error):
            self._base = sqlite3.connect(self.world.box.home.database, timeout=2, isolation_level=None)
            self._base.execute("begin immediate")
            self._before = evidence.last_event_time(self.world)

    def duration(self) -> float:
        return self._seconds

    def restore(self) -> None:
        if self._base is not None:
            with contextlib.suppress(sqlite3.Error):
                self._base.execute("rollback")
                self.had_effect = bool(self.world.launcher.live())
            self._base.close()


class DatabaseTorn(InjectedFault):
    """A power cut: the daemon is killed, and the log behind its last commit is cut off or garbage."""

    def inject(self) -> None:
        self._kill(self.world.launcher.live())
        deadline = time.monotonic() + 5
        while self.world.launcher.live() and time.monotonic() < deadline:
            time.sleep(0.005)
        log = self.world.box.home.database.with_name("ao.db-wal")
        if not log.exists() or self.world.launcher.live():
            self.had_effect = False
            return
        data = log.read_bytes()
        end = committed_length(data)
        tail = self.random.randbytes(self.random.randint(0, 9000))
        if self.random.random() < 0.5:
            tail = (
                data[end : end + self.random.randint(0, max(len(data) - end, 1))] + tail[: self.random.randint(0, 50)]
            )
        try:
            with log.open("r+b") as file:
                file.truncate(end)
                file.seek(end)
                file.write(tail)
        except OSError as error:  # another fault prevents the write
            self.notes.append(str(error))
            return
        self.notes.append(f"{len(data)} bytes, committed {end}, now {end + len(tail)}")


class Sleep(InjectedFault):
    """The machine sleeps: all processes stop, and the clock advances."""

    def inject(self) -> None:
        world = self.world
        agents = [pid for pids in evidence.live_agents(world).values() for pid in pids]
        self._pids = [*world.launcher.live(), *agents, *evidence.holders(world), *evidence.tmux_servers(world)]
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        self.had_effect = bool(self._pids)

    def duration(self) -> float:
        return self.random.uniform(0.2, 2.0)

    def restore(self) -> None:
        self.world.clock.set_offset(self.world.clock.offset + self.random.choice((0.0, 600.0, 30000.0)))
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


class NoDescriptors(InjectedFault):
    effect_text = NO_DESCRIPTORS_TEXT

    def inject(self) -> None:
        self._daemon, self._limits = 0, (0, 0)
        for pid in self.world.launcher.live()[-1:]:
            with contextlib.suppress(OSError):
                used = len(list(Path(f"/proc/{pid}/fd").iterdir()))
                self._limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
                few = used + self.random.choice((0, 1, 2, 3, 5, 8))
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (few, self._limits[1]))
                self._daemon = pid
                self.notes.append(f"{used} used, {few} allowed")

    def duration(self) -> float:
        return self.random.uniform(0.3, 1.5)

    def restore(self) -> None:
        if self._daemon:
            with contextlib.suppress(OSError):
                resource.prlimit(self._daemon, resource.RLIMIT_NOFILE, self._limits)


class GitLocked(InjectedFault):
    """Locks of another Git. A repeated command shows that the fault has an effect."""

    effect_text = GIT_LOCK_TEXT

    def inject(self) -> None:
        common = self.world.box.repo / ".git"
        names = [common / name for name in ("index", "packed-refs", "config", "HEAD", "refs/heads/main")]
        names += [path / "index" for path in (common / "worktrees").glob("*")]
        names += [common / "refs/heads/feature" / mark for mark in self.world.next_marks(3)] * 2
        names += [common / "refs/ao/rescue" / session for session in list(self.world.accepted.sessions)[-3:]]
        self._locks: list[Path] = []
        self._tried: dict[bytes, set[int]] = {}
        for name in self.random.sample(names, min(len(names), self.random.randint(1, 4))):
            lock = name.with_name(f"{name.name}.lock")
            with contextlib.suppress(OSError):
                lock.parent.mkdir(parents=True, exist_ok=True)
                lock.open("x").close()
                self._locks.append(lock)
                self.notes.append(str(lock.relative_to(common)))

    def duration(self) -> float:
        return self.random.choice((0.3, 0.7, 1.0, 4.5))

    def watch(self) -> None:
        if (pid := running_git(self.world)) is not None:
            with contextlib.suppress(OSError):
                attempts = self._tried.setdefault(Path(f"/proc/{pid}/cmdline").read_bytes(), set())
                attempts.add(pid)
                self.had_effect |= len(attempts) > 1

    def restore(self) -> None:
        for lock in self._locks:
            lock.unlink(missing_ok=True)


class UserWorks(InjectedFault):
    def inject(self) -> None:
        for _ in range(self.random.randint(2, 5)):
            self.notes.append(self.world.user.work(self.random))
            time.sleep(self.random.uniform(0.0, 0.15))
        self.had_effect = True


KINDS: dict[str, type[InjectedFault]] = {
    "kill-daemon": KillDaemon,
    "kill-agent": KillAgent,
    "kill-holder": KillHolder,
    "kill-tmux": KillTmux,
    "kill-git": KillGit,
    "disk-full": DiskFull,
    "disk-read-only": DiskReadOnly,
    "clock-jump": ClockJump,
    "forge-slow": ForgeSlow,
    "forge-failing": ForgeFailing,
    "forge-away": ForgeAway,
    "webhooks-lost": WebhooksLost,
    "webhooks-doubled": WebhooksDoubled,
    "webhooks-reordered": WebhooksReordered,
    "database-locked": DatabaseLocked,
    "database-torn": DatabaseTorn,
    "sleep": Sleep,
    "no-descriptors": NoDescriptors,
    "git-locked": GitLocked,
    "user-works": UserWorks,
}


def running_git(world: FaultWorld) -> int | None:
    """Return the pid of a Git command that the daemon runs now, or None."""
    for daemon in world.launcher.live():
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{daemon}/task").iterdir():
                for child in (task / "children").read_text().split():
                    if Path(f"/proc/{child}/comm").read_text().startswith("git"):
                        return int(child)
    return None


def remove_git_locks(world: FaultWorld) -> list[str]:
    """Wait until no Git runs in the world, then remove the remaining locks, as a person would; return their paths."""
    common, repo = world.box.repo / ".git", os.fsencode(world.box.folder)
    end = time.monotonic() + 3.0
    removed = []
    while locks := list(common.rglob("*.lock")):
        running = any(
            command.split(b"\0")[0].endswith(b"git") and (repo in command or _cwd(pid).startswith(repo))
            for pid, command in evidence.processes()
        )
        if running and time.monotonic() < end:
            time.sleep(0.02)
            continue
        for lock in locks:
            # A very recent lock belongs to a running command.
            with contextlib.suppress(OSError):
                if time.time() - lock.stat().st_mtime > 0.3:
                    lock.unlink()
                    removed.append(str(lock.relative_to(common)))
        if time.monotonic() > end:
            break
        time.sleep(0.05)
    return removed


def _cwd(pid: int) -> bytes:
    try:
        return os.fsencode(os.readlink(f"/proc/{pid}/cwd"))  # noqa: PTH115
    except OSError:
        return b""


def committed_length(data: bytes) -> int:
    """Return where the last committed frame of a write-ahead log ends."""
    if len(data) < 32:
        return 0
    page, salts = struct.unpack(">I", data[8:12])[0], data[16:24]
    position, end = 32, 32
    while position + 24 + page <= len(data) and data[position + 8 : position + 16] == salts:
        position += 24 + page
        if struct.unpack(">I", data[position - 24 - page + 4 : position - 24 - page + 8])[0]:
            end = position
    return end
