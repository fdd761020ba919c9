"""A session's files that grow on a node grow here too, at once and exactly once: its spool, its terminal's log, its workspace's HEAD.

The node pushes `(file, offset, bytes)`; the daemon appends where that goes on from what it has, skips what it has already, and says
how much it has. So nothing is doubled or missed by a lost link, by another Worker, by a restarted daemon, or by another one that has
nothing yet: after each new connection the node asks how much there is, and goes on from there.

A session that moved has a part of its log from another node. Hence each file goes by two marks, kept in the session's private folder on the
node: its bytes from `start` on are those here from `base` on.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog

from agent_orchestrator.base.files.watch import Watch
from agent_orchestrator.base.git.refs import find_layout, read_head, read_symbolic_head, valid_branch
from agent_orchestrator.base.home import Home
from agent_orchestrator.cluster.link.calls import load, understanding
from agent_orchestrator.cluster.link.connection import Handler, Link, LinkLost, Misunderstood, Reply, Request
from agent_orchestrator.errors import AoError, Denied, UsageError

LOG, REFLOG, MIRROR = "terminal.log", "git/logs/HEAD", "git"
PIECE = 1 << 18
"""Bytes pushed at once."""
LOG_PAUSE = 0.03
"""Seconds that a terminal's output is gathered before it is pushed; who watches the terminal itself does not wait for this."""
RECORD = "mirror.json"
_FARTHEST = 1 << 40
"""Bytes of a file that a node may say are gone."""
_T = TypeVar("_T")

log = structlog.get_logger()

Accepts = Callable[[str, int], bool]
"""May this launch (session, generation) still tell something? Generation 0: its workspace, before the first launch there."""


# -- the daemon's side -------------------------------------------------------------------------------------------------


class Receiver:
    """Appends to the daemon's own files what a node pushes."""

    def __init__(self, home: Home, accepts: Accepts = lambda _session, _generation: True) -> None:
        self.home = home
        self.accepts = accepts

    def handlers(self) -> Mapping[str, Handler]:
        """What a node may ask."""
        return {"mirror.sizes": self._sizes, "mirror.push": self._push, "mirror.head": self._head}

    async def _sizes(self, request: Request) -> Reply:
        asked = _understood(_Sizes, request)
        folder = self._folder(asked)
        return Reply({name: _size(folder / self._checked(asked, name)) for name in asked.names})

    async def _push(self, request: Request) -> Reply:
        """Append; `floor` is the first byte that the node has at all: what should come before it is nowhere any more."""
        asked = _understood(_Pushed, request)
        if asked.offset < 0 or not 0 <= asked.floor <= _FARTHEST:
            raise Misunderstood(f"a file from byte {asked.offset} on, of which {asked.floor} are gone, is none")
        path = self._folder(asked) / self._checked(asked, asked.name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size, offset = os.fstat(descriptor).st_size, asked.offset
            if size < asked.floor:
                size = asked.floor
                os.ftruncate(descriptor, size)
            fresh = request.data[size - offset :] if offset <= size else b""
            while fresh:
                written = os.write(descriptor, fresh)
                size, fresh = size + written, fresh[written:]
        finally:
            os.close(descriptor)
        return Reply({"size": size})

    async def _head(self, request: Request) -> Reply:
        """HEAD and the branch that it names, as Git's own files; HEAD last, for it is watched."""
        asked = _understood(_Moved, request)
        ref, commit = asked.ref, asked.commit
        if ref is not None and not (ref.startswith("refs/") and valid_branch(ref)):
            raise UsageError(f"{ref!r} is no ref")
        if commit is not None and not re.fullmatch(r"[0-9a-f]{40,64}", commit):
            raise UsageError(f"{commit!r} is no commit")
        folder = self._folder(asked) / MIRROR
        (folder / "logs").mkdir(mode=0o700, parents=True, exist_ok=True)
        if ref is not None and commit is not None:
            _write(folder / ref, f"{commit}\n")
        if ref is not None or commit is not None:
            _write(folder / "HEAD", f"ref: {ref}\n" if ref else f"{commit}\n")
        return Reply()

    def _folder(self, asked: _Launch) -> Path:
        session, generation = asked.session, asked.generation
        if session in ("", ".", "..") or set(session) & set("/\0") or not self.accepts(session, generation):
            raise Denied(f"launch {generation} of {session} has no say any more")
        return self.home.session(session)

    def _checked(self, asked: _Launch, name: str) -> str:
        if name not in (LOG, REFLOG, f"spool.{asked.generation}.jsonl"):
            raise Denied(f"{name[:200]!r} is not a file that is mirrored")
        return name


@dataclass(frozen=True)
class _Launch:
    """Whom it is about."""

    session: str
    generation: int


@dataclass(frozen=True)
class _Sizes(_Launch):
    names: tuple[str, ...]


@dataclass(frozen=True)
class _Pushed(_Launch):
    name: str
    offset: int
    floor: int


@dataclass(frozen=True)
class _Moved(_Launch):
    ref: str | None = None
    commit: str | None = None


def _understood(kind: type[_T], request: Request) -> _T:
    with understanding(f"what is said with {request.name}"):
        found: _T = load(kind, request.body)
    return found


# -- the node's side ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Marks:
    start: int = 0
    base: int = 0


@dataclass(slots=True)
class _Record:
    """What must be known of a session after a restart of the Worker."""

    generation: int = 0
    workspace: str = ""
    marks: dict[str, _Marks] = field(default_factory=dict)


@dataclass(slots=True)
class _Mirrored:
    """One session of this node."""

    session: str
    record: _Record
    there: dict[str, int] = field(default_factory=dict)
    """How much the daemon has of each file; empty: it was not asked yet."""
    head: tuple[str | None, str | None] | None = None
    """What it was told last."""
    refused: bool = False
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    stops: list[Callable[[], None]] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = None


class Mirror:
    """Pushes what this node's sessions write, while there is a link; costs nothing while they write nothing."""

    def __init__(self, home: Home, watch: Watch) -> None:
        self.home = home
        self.watch = watch
        self._sessions: dict[str, _Mirrored] = {}
        self._link: Link | None = None

    def adopt(self) -> None:
        """Go on with the sessions that an earlier Worker had here."""
        for path in sorted(self.home.sessions.glob(f"*/{RECORD}")):
            found = _read_record(path)
            if found is not None:
                self._follow(_Mirrored(path.parent.name, found))

    async def serve(self, link: Link) -> None:
        """Push by this link until it is lost."""
        self._link = link
        for one in self._sessions.values():
            one.there = {}  # what is under way goes on with what it has
            one.head, one.refused = None, False
            self._start(one)
        try:
            await link.closed.wait()
        finally:
            if self._link is link:
                self._link = None
                for one in self._sessions.values():
                    if one.task is not None:
                        one.task.cancel()
                        one.task = None

    async def begin_workspace(self, link: Link, session: str, workspace: Path) -> None:
        """Its workspace is there: its HEAD is mirrored from now on."""
        known = self._sessions.get(session)
        record = copy.deepcopy(known.record) if known else _Record()
        record.workspace = str(workspace)
        await self._begin(link, session, record, (REFLOG,))

    async def begin_launch(self, link: Link, session: str, generation: int, workspace: Path) -> None:
        """It is about to be launched: what it prints and reports is mirrored from now on. Again is fine."""
        known = self._sessions.get(session)
        record = copy.deepcopy(known.record) if known else _Record()
        for path in (self.home.spool(session, generation), self.home.terminal_log(session)):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
        if record.generation == generation:
            return
        record.generation, record.workspace = generation, str(workspace)
        record.marks = {name: marks for name, marks in record.marks.items() if name in (LOG, REFLOG)}
        await self._begin(link, session, record, (LOG, REFLOG, f"spool.{generation}.jsonl"))

    async def flush(self, link: Link, session: str) -> None:
        """Return when everything that the session has written so far is there. Raises `LinkLost`."""
        one = self._sessions.get(session)
        if one is not None:
            await self._push(one, link)

    def forget(self, session: str) -> None:
        """The session is no more of this node's."""
        one = self._sessions.pop(session, None)
        if one is not None:
            self._unfollow(one)
            (self.home.session(session) / RECORD).unlink(missing_ok=True)

    # -- which files ---------------------------------------------------------------------------------------------------

    async def _begin(self, link: Link, session: str, record: _Record, names: tuple[str, ...]) -> None:
        """Settle where each file's bytes go: on from what the daemon has, unless they are what it has."""
        asked = {"session": session, "generation": record.generation, "names": names}
        there = (await link.call("mirror.sizes", asked)).body
        for name in names:
            size, marks = _size(self._path(session, record, name)), record.marks.get(name)
            if marks is None or marks.base + size - marks.start < there[name]:
                # What a log holds of an earlier stay is there already; a reflog is as new as its workspace.
                start = size if marks is not None and name == LOG else 0
                record.marks[name] = _Marks(start, there[name])
        _write(self.home.session(session) / RECORD, json.dumps(asdict(record)))
        old = self._sessions.get(session)
        if old is not None:
            self._unfollow(old)
        self._follow(_Mirrored(session, record))

    def _path(self, session: str, record: _Record, name: str) -> Path:
        if name != REFLOG:
            return self.home.session(session) / name
        layout = find_layout(Path(record.workspace)) if record.workspace else None
        return layout.git_dir / "logs" / "HEAD" if layout else self.home.session(session) / "no-workspace"

    def _follow(self, one: _Mirrored) -> None:
        self._sessions[one.session] = one
        for name in one.record.marks:
            if name != REFLOG:
                changed = partial(self._later, one) if name == LOG else one.wake.set
                one.stops.append(self.watch.file(self._path(one.session, one.record, name), changed))
        layout = find_layout(Path(one.record.workspace)) if one.record.workspace else None
        for folder in (layout.git_dir, layout.git_dir / "logs") if layout else ():
            one.stops.append(self.watch.folder(folder, one.wake.set))
        self._start(one)

    def _unfollow(self, one: _Mirrored) -> None:
        for stop in one.stops:
            stop()
        if one.timer is not None:
            one.timer.cancel()
        if one.task is not None:
            one.task.cancel()

    def _later(self, one: _Mirrored) -> None:
        if one.timer is None:
            one.timer = asyncio.get_running_loop().call_later(LOG_PAUSE, self._due, one)

    def _due(self, one: _Mirrored) -> None:
        one.timer = None
        one.wake.set()

    # -- pushing -------------------------------------------------------------------------------------------------------

    def _start(self, one: _Mirrored) -> None:
        if self._link is not None:
            one.wake.set()
            one.task = asyncio.get_running_loop().create_task(self._pump(one, self._link))

    async def _pump(self, one: _Mirrored, link: Link) -> None:
        while not one.refused:
            await one.wake.wait()
            try:
                await self._push(one, link)
            except LinkLost:
                return
            except (AoError, OSError) as error:
                log.warning("a session could not be mirrored; trying again", session=one.session, error=str(error))
                await asyncio.sleep(1.0)
                one.wake.set()

    async def _push(self, one: _Mirrored, link: Link) -> None:
        async with one.lock:
            one.wake.clear()
            if one.refused:
                return
            about = {"session": one.session, "generation": one.record.generation}
            try:
                there = one.there
                if names := [name for name in one.record.marks if name not in there]:
                    there |= (await link.call("mirror.sizes", {**about, "names": names})).body
                for name in [*one.record.marks]:
                    await self._push_file(one, link, name, about, there)
                await self._push_head(one, link, about)
            except Denied as error:
                one.refused = True
                log.warning("the daemon wants to hear no more of a launch", session=one.session, error=str(error))
            except BaseException:
                one.wake.set()  # it is not all there yet
                raise

    async def _push_file(
        self, one: _Mirrored, link: Link, name: str, about: Mapping[str, Any], there: dict[str, int]
    ) -> None:
        path, marks = self._path(one.session, one.record, name), one.record.marks[name]
        while True:
            position = max(there[name], marks.base)
            offset = position - marks.base + marks.start
            size = _size(path)
            if size < offset:  # it was cut: what stands in it now is passed over, what is appended later is not
                if name != REFLOG:  # which goes with its workspace
                    log.warning("a mirrored file was cut", session=one.session, file=name, size=size)
                marks.start, marks.base = size, position
                _write(self.home.session(one.session) / RECORD, json.dumps(asdict(one.record)))
                return
            if size == offset:
                return
            data = _piece(path, offset)
            if name.startswith("spool."):
                await self._push_head(one, link, about)  # what it says is done is what it committed before
            asked = {**about, "name": name, "offset": position, "floor": marks.base}
            there[name] = int((await link.call("mirror.push", asked, data)).body["size"])

    async def _push_head(self, one: _Mirrored, link: Link, about: Mapping[str, Any]) -> None:
        layout = find_layout(Path(one.record.workspace)) if one.record.workspace else None
        if layout is None:
            return
        head = (read_symbolic_head(layout.git_dir), read_head(layout.git_dir))
        if head != one.head and head != (None, None):
            await link.call("mirror.head", {**about, "ref": head[0], "commit": head[1]})
            one.head = head


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _piece(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(PIECE)


def _write(path: Path, text: str) -> None:
    """A file for the owner only, there whole or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:  # noqa: PTH123 - a descriptor
        file.write(text)
    fresh.replace(path)


def _read_record(path: Path) -> _Record | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(path.read_text())
        marks = {name: _Marks(**one) for name, one in found["marks"].items()}
        return _Record(int(found["generation"]), found["workspace"], marks)
    return None
