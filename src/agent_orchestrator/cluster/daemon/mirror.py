"""Mirrors files of a session that grow on a node into the daemon's home: its event spool, its terminal log, its workspace's HEAD.

The node pushes `(file, offset, bytes)`; the daemon appends what continues its copy, skips what it has already, and answers how much it
has. So nothing is doubled or missed after a lost link, with a new Worker, or with a restarted or new daemon: after each new connection
the node asks how much the daemon has, and continues from there.

A session that moved has a part of its log from another node. Hence each file is described by two marks, kept in the session's private
folder on the node: its bytes from `start` on are the daemon's bytes from `base` on.
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

from agent_orchestrator.base.files.watch import FileWatcher
from agent_orchestrator.base.git.refs import find_layout, is_valid_branch, read_head, read_symbolic_head
from agent_orchestrator.base.home import Home
from agent_orchestrator.cluster.link.calls import from_json, parsing_peer_data
from agent_orchestrator.cluster.link.connection import (
    CallHandler,
    LinkLost,
    LinkReply,
    LinkRequest,
    NodeLink,
    ProtocolViolation,
)
from agent_orchestrator.errors import AoError, Denied, UsageError

LOG_NAME, REFLOG_NAME, HEAD_FOLDER = "terminal.log", "git/logs/HEAD", "git"
"""The files that are mirrored, and the folder here that holds the mirrored HEAD."""
PIECE_BYTES = 1 << 18
"""Bytes pushed at once."""
LOG_GATHER_SECONDS = 0.03
"""Seconds that a terminal's output is gathered before it is pushed; a person who watches the terminal itself does not wait for this."""
RECORD_FILE = "mirror.json"
"""The file in a session's private folder on the node that keeps its `_MirrorRecord`."""
_MAX_FLOOR_BYTES = 1 << 40
"""The largest floor that a node may report: bytes of a file that exist nowhere any more."""
_T = TypeVar("_T")

log = structlog.get_logger()

AcceptsLaunch = Callable[[str, int], bool]
"""Returns whether data of a launch (session, generation) is accepted.

Generation 0: its workspace, before the first launch there.
"""


# -- the daemon's side -------------------------------------------------------------------------------------------------


class MirrorReceiver:
    """Appends to the daemon's own files what a node pushes."""

    def __init__(self, home: Home, accepts: AcceptsLaunch = lambda _session, _generation: True) -> None:
        self.home = home
        self.accepts_launch = accepts

    def handlers(self) -> Mapping[str, CallHandler]:
        """Return the handlers of the calls that a node may make, by name."""
        return {"mirror.sizes": self._sizes, "mirror.push": self._push, "mirror.head": self._head}

    async def _sizes(self, request: LinkRequest) -> LinkReply:
        """Answer how many bytes the daemon has of each file."""
        body = _parse_body(_SizesRequest, request)
        folder = self._session_folder(body)
        return LinkReply({name: _file_size(folder / self._checked_name(body, name)) for name in body.names})

    async def _push(self, request: LinkRequest) -> LinkReply:
        """Append bytes to a file; `floor` is the first byte that the node has: what comes before it exists nowhere any more."""
        body = _parse_body(_PushRequest, request)
        if body.offset < 0 or not 0 <= body.floor <= _MAX_FLOOR_BYTES:
            raise ProtocolViolation(f"a file from byte {body.offset} on, of which {body.floor} are gone, is none")
        path = self._session_folder(body) / self._checked_name(body, body.name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size, offset = os.fstat(descriptor).st_size, body.offset
            if size < body.floor:
                size = body.floor
                os.ftruncate(descriptor, size)
            remaining = request.data[size - offset :] if offset <= size else b""
            while remaining:
                written = os.write(descriptor, remaining)
                size, remaining = size + written, remaining[written:]
        finally:
            os.close(descriptor)
        return LinkReply({"size": size})

    async def _head(self, request: LinkRequest) -> LinkReply:
        """Write HEAD and the branch that it names as Git's own files; HEAD last, because it is watched."""
        body = _parse_body(_HeadRequest, request)
        ref, commit = body.ref, body.commit
        if ref is not None and not (ref.startswith("refs/") and is_valid_branch(ref)):
            raise UsageError(f"{ref!r} is no ref")
        if commit is not None and not re.fullmatch(r"[0-9a-f]{40,64}", commit):
            raise UsageError(f"{commit!r} is no commit")
        folder = self._session_folder(body) / HEAD_FOLDER
        (folder / "logs").mkdir(mode=0o700, parents=True, exist_ok=True)
        if ref is not None and commit is not None:
            _replace_file(folder / ref, f"{commit}\n")
        if ref is not None or commit is not None:
            _replace_file(folder / "HEAD", f"ref: {ref}\n" if ref else f"{commit}\n")
        return LinkReply()

    def _session_folder(self, launch: _LaunchRequest) -> Path:
        """Return the session's private folder here; raise `Denied` if the launch may not write any more."""
        session, generation = launch.session, launch.generation
        if session in ("", ".", "..") or set(session) & set("/\0") or not self.accepts_launch(session, generation):
            raise Denied(f"launch {generation} of {session} has no say any more")
        return self.home.session(session)

    def _checked_name(self, launch: _LaunchRequest, name: str) -> str:
        """Return the file's name; raise `Denied` if it is not a mirrored file."""
        if name not in (LOG_NAME, REFLOG_NAME, f"spool.{launch.generation}.jsonl"):
            raise Denied(f"{name[:200]!r} is not a file that is mirrored")
        return name


@dataclass(frozen=True)
class _LaunchRequest:
    """The launch that a request is about."""

    session: str
    generation: int


@dataclass(frozen=True)
class _SizesRequest(_LaunchRequest):
    """A request for the sizes of files here."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class _PushRequest(_LaunchRequest):
    """A request to append bytes to a file."""

    name: str
    offset: int
    floor: int


@dataclass(frozen=True)
class _HeadRequest(_LaunchRequest):
    """A request to set HEAD."""

    ref: str | None = None
    commit: str | None = None


def _parse_body(kind: type[_T], request: LinkRequest) -> _T:
    """Return a request's body as this type; raise `ProtocolViolation` if it does not fit."""
    with parsing_peer_data(f"what is said with {request.name}"):
        body: _T = from_json(kind, request.body)
    return body


# -- the node's side ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Marks:
    """Which byte of a file on the node is which byte of the daemon's copy."""

    start: int = 0
    base: int = 0


@dataclass(slots=True)
class _MirrorRecord:
    """What must be known of a session after a restart of the Worker."""

    generation: int = 0
    workspace: str = ""
    marks: dict[str, _Marks] = field(default_factory=dict)


@dataclass(slots=True)
class _MirroredSession:
    """One session of this node."""

    session: str
    record: _MirrorRecord
    daemon_sizes: dict[str, int] = field(default_factory=dict)
    """How many bytes the daemon has of each file; empty until it was asked."""
    head: tuple[str | None, str | None] | None = None
    """The ref and commit that were pushed last."""
    refused: bool = False
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    stop_watching: list[Callable[[], object]] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = None


class Mirror:
    """Pushes what this node's sessions write while there is a link; idle while they write nothing."""

    def __init__(self, home: Home, watch: FileWatcher) -> None:
        self.home = home
        self.watch = watch
        self._sessions: dict[str, _MirroredSession] = {}
        self._link: NodeLink | None = None

    def adopt(self) -> None:
        """Continue with the sessions that an earlier Worker mirrored from here."""
        for path in sorted(self.home.sessions.glob(f"*/{RECORD_FILE}")):
            record = _read_record(path)
            if record is not None:
                self._watch_files(_MirroredSession(path.parent.name, record))

    async def serve(self, link: NodeLink) -> None:
        """Push by this link until it is lost."""
        self._link = link
        for mirrored in self._sessions.values():
            mirrored.daemon_sizes = {}  # a new dict: a push in progress keeps the old one
            mirrored.head, mirrored.refused = None, False
            self._start_pushing(mirrored)
        try:
            await link.closed.wait()
        finally:
            if self._link is link:
                self._link = None
                for mirrored in self._sessions.values():
                    if mirrored.task is not None:
                        mirrored.task.cancel()
                        mirrored.task = None

    async def begin_workspace(self, link: NodeLink, session: str, workspace: Path) -> None:
        """Mirror HEAD of a workspace that exists now."""
        mirrored = self._sessions.get(session)
        record = copy.deepcopy(mirrored.record) if mirrored else _MirrorRecord()
        record.workspace = str(workspace)
        await self._begin_mirroring(link, session, record, (REFLOG_NAME,))

    async def begin_launch(self, link: NodeLink, session: str, generation: int, workspace: Path) -> None:
        """Mirror the terminal log and the spool of a session that is about to be launched; repeating it changes nothing."""
        mirrored = self._sessions.get(session)
        record = copy.deepcopy(mirrored.record) if mirrored else _MirrorRecord()
        for path in (self.home.spool(session, generation), self.home.terminal_log(session)):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
        if record.generation == generation:
            return
        record.generation, record.workspace = generation, str(workspace)
        record.marks = {name: marks for name, marks in record.marks.items() if name in (LOG_NAME, REFLOG_NAME)}
        await self._begin_mirroring(link, session, record, (LOG_NAME, REFLOG_NAME, f"spool.{generation}.jsonl"))

    async def flush(self, link: NodeLink, session: str) -> None:
        """Return when the daemon has everything that the session has written so far. Raises `LinkLost`."""
        mirrored = self._sessions.get(session)
        if mirrored is not None:
            await self._push(mirrored, link)

    def forget(self, session: str) -> None:
        """Stop mirroring a session that no longer belongs to this node."""
        mirrored = self._sessions.pop(session, None)
        if mirrored is not None:
            self._unwatch_files(mirrored)
            (self.home.session(session) / RECORD_FILE).unlink(missing_ok=True)

    # -- which files ---------------------------------------------------------------------------------------------------

    async def _begin_mirroring(
        self, link: NodeLink, session: str, record: _MirrorRecord, names: tuple[str, ...]
    ) -> None:
        """Set the marks of each file to continue the daemon's copy, unless the existing marks fit; then start mirroring."""
        request = {"session": session, "generation": record.generation, "names": names}
        daemon_sizes = (await link.call("mirror.sizes", request)).body
        for name in names:
            size, marks = _file_size(self._file_path(session, record, name)), record.marks.get(name)
            if marks is None or marks.base + size - marks.start < daemon_sizes[name]:
                # The daemon already has the log of an earlier stay on this node; a reflog is as new as its workspace.
                start = size if marks is not None and name == LOG_NAME else 0
                record.marks[name] = _Marks(start, daemon_sizes[name])
        _replace_file(self.home.session(session) / RECORD_FILE, json.dumps(asdict(record)))
        old = self._sessions.get(session)
        if old is not None:
            self._unwatch_files(old)
        self._watch_files(_MirroredSession(session, record))

    def _file_path(self, session: str, record: _MirrorRecord, name: str) -> Path:
        """Return the path of a mirrored file on this node."""
        if name != REFLOG_NAME:
            return self.home.session(session) / name
        layout = find_layout(Path(record.workspace)) if record.workspace else None
        return layout.git_dir / "logs" / "HEAD" if layout else self.home.session(session) / "no-workspace"

    def _watch_files(self, mirrored: _MirroredSession) -> None:
        """Watch a session's files, and start pushing them."""
        self._sessions[mirrored.session] = mirrored
        for name in mirrored.record.marks:
            if name != REFLOG_NAME:
                changed = partial(self._wake_soon, mirrored) if name == LOG_NAME else mirrored.wake.set
                mirrored.stop_watching.append(
                    self.watch.watch_file(self._file_path(mirrored.session, mirrored.record, name), changed)
                )
        layout = find_layout(Path(mirrored.record.workspace)) if mirrored.record.workspace else None
        for folder in (layout.git_dir, layout.git_dir / "logs") if layout else ():
            mirrored.stop_watching.append(self.watch.watch_folder(folder, mirrored.wake.set))
        self._start_pushing(mirrored)

    def _unwatch_files(self, mirrored: _MirroredSession) -> None:
        """Stop watching and pushing a session's files."""
        for stop in mirrored.stop_watching:
            stop()
        if mirrored.timer is not None:
            mirrored.timer.cancel()
        if mirrored.task is not None:
            mirrored.task.cancel()

    def _wake_soon(self, mirrored: _MirroredSession) -> None:
        """Wake the pusher after `LOG_GATHER_SECONDS`; for the terminal log, so that its output is gathered."""
        if mirrored.timer is None:
            mirrored.timer = asyncio.get_running_loop().call_later(LOG_GATHER_SECONDS, self._wake_now, mirrored)

    def _wake_now(self, mirrored: _MirroredSession) -> None:
        """Wake the pusher when that time is over."""
        mirrored.timer = None
        mirrored.wake.set()

    # -- pushing -------------------------------------------------------------------------------------------------------

    def _start_pushing(self, mirrored: _MirroredSession) -> None:
        """Start the task that pushes a session's files, if there is a link."""
        if self._link is not None:
            mirrored.wake.set()
            mirrored.task = asyncio.get_running_loop().create_task(self._push_until_lost(mirrored, self._link))

    async def _push_until_lost(self, mirrored: _MirroredSession, link: NodeLink) -> None:
        """Push whenever something changed, until the link is lost or the daemon refuses the launch."""
        while not mirrored.refused:
            await mirrored.wake.wait()
            try:
                await self._push(mirrored, link)
            except LinkLost:
                return
            except (AoError, OSError) as error:
                log.warning("a session could not be mirrored; trying again", session=mirrored.session, error=str(error))
                await asyncio.sleep(1.0)
                mirrored.wake.set()

    async def _push(self, mirrored: _MirroredSession, link: NodeLink) -> None:
        """Push everything that the daemon does not have yet; raise what goes wrong, except a refusal."""
        async with mirrored.lock:
            mirrored.wake.clear()
            if mirrored.refused:
                return
            launch = {"session": mirrored.session, "generation": mirrored.record.generation}
            try:
                daemon_sizes = mirrored.daemon_sizes
                if names := [name for name in mirrored.record.marks if name not in daemon_sizes]:
                    daemon_sizes |= (await link.call("mirror.sizes", {**launch, "names": names})).body
                for name in [*mirrored.record.marks]:
                    await self._push_file(mirrored, link, name, launch, daemon_sizes)
                await self._push_head(mirrored, link, launch)
            except Denied as error:
                mirrored.refused = True
                log.warning("the daemon wants to hear no more of a launch", session=mirrored.session, error=str(error))
            except BaseException:
                mirrored.wake.set()  # not everything was pushed
                raise

    async def _push_file(
        self,
        mirrored: _MirroredSession,
        link: NodeLink,
        name: str,
        launch: Mapping[str, Any],
        daemon_sizes: dict[str, int],
    ) -> None:
        """Push one file's missing bytes; if it was truncated, set its marks to continue from its present end."""
        path, marks = self._file_path(mirrored.session, mirrored.record, name), mirrored.record.marks[name]
        while True:
            position = max(daemon_sizes[name], marks.base)
            offset = position - marks.base + marks.start
            size = _file_size(path)
            if size < offset:  # truncated: skip what is in it now, push what is appended later
                if name != REFLOG_NAME:  # the reflog is removed together with its workspace
                    log.warning("a mirrored file was cut", session=mirrored.session, file=name, size=size)
                marks.start, marks.base = size, position
                _replace_file(self.home.session(mirrored.session) / RECORD_FILE, json.dumps(asdict(mirrored.record)))
                return
            if size == offset:
                return
            data = _read_piece(path, offset)
            if name.startswith("spool."):
                # The commits that the spool reports as done must be here first.
                await self._push_head(mirrored, link, launch)
            request = {**launch, "name": name, "offset": position, "floor": marks.base}
            daemon_sizes[name] = int((await link.call("mirror.push", request, data)).body["size"])

    async def _push_head(self, mirrored: _MirroredSession, link: NodeLink, launch: Mapping[str, Any]) -> None:
        """Push HEAD if it has changed."""
        layout = find_layout(Path(mirrored.record.workspace)) if mirrored.record.workspace else None
        if layout is None:
            return
        head = (read_symbolic_head(layout.git_dir), read_head(layout.git_dir))
        if head != mirrored.head and head != (None, None):
            await link.call("mirror.head", {**launch, "ref": head[0], "commit": head[1]})
            mirrored.head = head


def _file_size(path: Path) -> int:
    """Return a file's size in bytes, or 0 if it cannot be read."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read_piece(path: Path, offset: int) -> bytes:
    """Read up to `PIECE_BYTES` of a file from an offset."""
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(PIECE_BYTES)


def _replace_file(path: Path, text: str) -> None:
    """Write a file for the owner only, whole or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.new")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:  # noqa: PTH123 - a descriptor
        file.write(text)
    draft.replace(path)


def _read_record(path: Path) -> _MirrorRecord | None:
    """Return the record in a file, or None if it cannot be read."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        data = json.loads(path.read_text())
        marks = {name: _Marks(**mark) for name, mark in data["marks"].items()}
        return _MirrorRecord(int(data["generation"]), data["workspace"], marks)
    return None
