"""A push: its objects are looked at apart from the repository's, and its refs move, all or none, only if the session still may.

Git's own receiver is not used: what it allows, runs and checks depends on the repository's configuration, which agents may write.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.base.git.commands import Git, GitFailed
from agent_orchestrator.cluster.git_server import pktline
from agent_orchestrator.cluster.git_server.access import SHOWN, Rights
from agent_orchestrator.cluster.git_server.pktline import Source
from agent_orchestrator.errors import AoError, Denied, Temporary, UsageError

LARGEST = 8 << 30
"""Bytes of a pack, at most."""
_CAPABILITIES = "report-status side-band-64k quiet atomic ofs-delta agent=agent-orchestrator"
_COMMANDS, _CUTS = 64, 100_000
_FEW = 100
"""Objects that are stored one by one, as Git does; more stay the pack that they came in."""
_DROPPED = 32 << 20
"""Bytes of a refused push that are taken and dropped, so that its sender gets to read why."""
_COMMAND = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64}) ([0-9a-f]{40}|[0-9a-f]{64}) (refs/[^\x00-\x20\x7f]+)\n?")
_SHALLOW = re.compile(rb"shallow ([0-9a-f]{40}|[0-9a-f]{64})\n?")
_LAST = (".idx", ".rev", ".bitmap", ".mtimes")


@dataclass(frozen=True, slots=True)
class Command:
    """One ref to be moved; `old` of zeros: made, `new` of zeros: removed."""

    old: str
    new: str
    ref: str


@dataclass(slots=True)
class Push:
    """What is asked for, before any object of it."""

    commands: list[Command]
    shallow: set[str]
    capabilities: frozenset[str] = frozenset()


class Refused(AoError):
    """The push is refused, for this reason; which ref it is about, if it is about one."""

    def __init__(self, reason: str, ref: str = "") -> None:
        super().__init__(reason)
        self.ref = ref


async def offer_receiving(git: Git, rights: Rights) -> AsyncGenerator[bytes, None]:
    """What is here already, so that it is not sent again, and what may be asked."""
    known = await git.refs(*SHOWN, *rights.visible)
    first = next(iter(known.values()), "0" * 40)
    capabilities = f"{_CAPABILITIES} object-format={'sha256' if len(first) == 64 else 'sha1'}".encode()
    lines = [f"{sha} {name}".encode(errors="surrogateescape") for name, sha in known.items()]
    lines = lines or [f"{first} capabilities^{{}}".encode()]
    yield pktline.line(b"# service=git-receive-pack\n") + pktline.FLUSH
    yield pktline.line(lines[0] + b"\0" + capabilities + b"\n")
    for one in lines[1:]:
        yield pktline.line(one + b"\n")
    yield pktline.FLUSH


async def receive(git: Git, rights: Rights, sent: Source) -> AsyncGenerator[bytes, None]:
    """Take a push; the answer says of each ref whether it was moved, and why not."""
    push = await _read_commands(sent)
    if push is None:
        return  # it was only asked whether we are there
    unpacked, reason, about = "ok", "", ""
    try:
        _check(push, rights)
        await _take(git, rights, push, sent)
    except (Refused, Denied) as error:
        reason, about = error.text, error.ref if isinstance(error, Refused) else ""
    except GitFailed as error:
        unpacked = reason = _first_line(error.stderr)
    if reason:
        await sent.drop(_DROPPED)
    answer = pktline.line(f"unpack {unpacked}\n".encode())
    for command in push.commands:
        why = reason if about in ("", command.ref) else f"{about} was refused"
        said = f"ng {command.ref} {why}\n" if reason else f"ok {command.ref}\n"
        answer += pktline.line(said.encode(errors="surrogateescape"))
    answer += pktline.FLUSH
    if "side-band-64k" in push.capabilities:
        for piece in pktline.banded(1, answer):
            yield piece
        yield pktline.FLUSH
    else:
        yield answer


async def _read_commands(sent: Source) -> Push | None:
    push = Push([], set())
    while (line := await sent.line()) is not None:
        content, _, capabilities = line.partition(b"\0")
        if capabilities:
            push.capabilities = frozenset(capabilities.decode(errors="replace").split())
        if (cut := _SHALLOW.fullmatch(content)) and len(push.shallow) < _CUTS:
            push.shallow.add(cut[1].decode())
            continue
        found = _COMMAND.fullmatch(content)
        if found is None or len(push.commands) == _COMMANDS:
            raise UsageError("this is not a push that can be taken", "push refs one by one, without a signature")
        old, new, ref = (part.decode(errors="surrogateescape") for part in found.groups())
        push.commands.append(Command(old, new, ref))
    return push if push.commands else None


def _check(push: Push, rights: Rights) -> None:
    for command in push.commands:
        if why := rights.why_not(command.ref):
            raise Refused(why, command.ref)
        if not command.new.strip("0"):
            raise Refused("nothing is removed by a push", command.ref)
    if len({command.ref for command in push.commands}) < len(push.commands):
        raise Refused("one ref is named twice")


async def _take(git: Git, rights: Rights, push: Push, sent: Source) -> None:
    layout = await git.layout()
    if layout is None:
        raise Refused("the repository is not there any more")
    if push.shallow:
        cut = layout.common / "shallow"
        known = set(cut.read_text().split()) if cut.is_file() else set[str]()
        if not push.shallow <= known:
            raise Refused("history that is cut off cannot be taken: git fetch --unshallow")
    objects = layout.common / "objects"
    # By Git's own name for it, so that its clean-up finds what a crash leaves.
    with tempfile.TemporaryDirectory(prefix="tmp_objdir-incoming-", dir=objects) as folder:
        apart = Path(folder, "objects")
        apart.mkdir()
        quoted = str(objects).replace("\\", "\\\\").replace('"', '\\"')
        env = {
            "GIT_OBJECT_DIRECTORY": str(apart),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"',
            "GIT_QUARANTINE_PATH": str(apart),
            "GIT_NO_REPLACE_OBJECTS": "1",
        }
        await _unpack(git, env, sent, Path(folder, "err"))
        news = "".join(f"{command.new}\n" for command in push.commands).encode()
        whole = ("rev-list", "--objects", "--stdin", "--not", "--all", "--quiet", "--alternate-refs")
        await git.run(*whole, env=env, input=news, timeout=None)
        rights.still()
        await asyncio.to_thread(_move_in, apart, objects)
        await _move_refs(git, rights, push, Path(folder, "err"))


async def _unpack(git: Git, env: Mapping[str, str], sent: Source, log: Path) -> None:
    """Store the objects, each looked at; a bad one fails all."""
    head = await sent.exactly(12)
    if head[:4] != b"PACK":
        raise Refused("what was sent is no pack")
    few = int.from_bytes(head[8:12], "big") < _FEW
    argv = ("unpack-objects", "-q") if few else ("index-pack", "--stdin", "--fix-thin")
    async with git.talk(*argv, "--strict", f"--max-input-size={LARGEST}", log=log, env=env) as process:
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(ConnectionError):
            piece = head
            while piece:
                process.stdin.write(piece)
                await process.stdin.drain()
                piece = await sent.read()
        process.stdin.close()
        await process.stdout.read()
        if await process.wait():
            raise Refused(_first_line(log.read_text(errors="replace")))


def _move_in(apart: Path, objects: Path) -> None:
    """Make the objects the repository's; a pack is there before its index, by which it is found."""
    files = [path for path in apart.rglob("*") if path.is_file()]
    for path in sorted(files, key=lambda path: (path.suffix in _LAST, path.suffix == ".idx")):
        target = objects / path.relative_to(apart)
        target.parent.mkdir(exist_ok=True)
        if not target.exists():
            path.replace(target)


async def _move_refs(git: Git, rights: Rights, push: Push, log: Path) -> None:
    """All of them or none; asked once more when all that is left is one word, after which nothing can come between."""
    steps = ["start", *(f"update {one.ref} {one.new} {one.old}" for one in push.commands), "prepare"]
    async with git.talk("update-ref", "-m", "ao: push", "--no-deref", "--stdin", log=log) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("".join(f"{step}\n" for step in steps).encode(errors="surrogateescape"))
        said = b""
        while b"prepare: ok" not in said:
            piece = await process.stdout.read(1000)
            if not piece:
                raise Refused(_first_line(log.read_text(errors="replace")))
            said += piece
        rights.still()
        process.stdin.write(b"commit\n")
        process.stdin.close()
        await process.stdout.read()
        if await process.wait():
            raise Temporary("the refs could not be moved", "try again")


def _first_line(said: str) -> str:
    lines = said.strip().splitlines() or ["Git does not say why"]
    told = next((line for line in lines if line.startswith(("fatal: ", "error: "))), lines[0])
    return told.removeprefix("fatal: ").removeprefix("error: ")[:300]
