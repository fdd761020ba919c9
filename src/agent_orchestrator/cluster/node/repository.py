"""A node's own copy of each project's repository: bare, shared by all sessions there, fed by the daemon (`server/routes/git.py`).

Workspaces are clones that borrow its objects, so the tenth session of a project fetches only what is new. Its branches are what the daemon
has; what the sessions here made is under `refs/ao/` until the daemon has it too. An object that a workspace may borrow is never removed
while there is one (`refs/ao/keep/`).

The token is given to each Git by its environment alone: it is neither on the disk nor on a command line.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from agent_orchestrator.base.git.commands import Git, GitFailed
from agent_orchestrator.base.git.refs import find_layout, ref_safe
from agent_orchestrator.base.home import Home
from agent_orchestrator.errors import AoError, Conflict, Denied, Temporary
from agent_orchestrator.plugins.workspaces.branch_publication import brought_ref, forget
from agent_orchestrator.plugins.workspaces.git_workspace import remove_tree
from agent_orchestrator.protocols.host import Host

TIMEOUT = 1800.0
"""Seconds that a fetch or a push may take."""
MANY = 20
"""Packs from which on they are made fewer."""
_OWN = ("checkpoint", "rescue", "restored")
_REJECTED = re.compile(r"\[remote rejected\][^\n]*\((.*)\)")
_REFUSED = re.compile(r"^remote: (.*)\n(?:.*\n)*fatal: .*(?:error: 403|Authentication failed)", re.MULTILINE)
_UNREACHABLE = re.compile(
    r"unable to access|Could not resolve|early EOF|unexpected disconnect|RPC failed|hung up|error: 5\d\d|could not read Username"
)


@dataclass(frozen=True, slots=True)
class Access:
    """How the daemon is reached on behalf of one session."""

    url: str
    """The daemon's address."""
    token: str
    ca: Path | None = None
    """A file with the certificate of the authority that it is known by; none: the system's authorities."""
    pin: str = ""
    """Its own key (`pin_of`), by which alone it is known then."""

    def origin(self, project: str) -> str:
        """Where a project's repository is."""
        return f"{self.url.rstrip('/')}/git/{quote(project, safe='')}.git"

    def settings(self, project: str) -> list[tuple[str, str]]:
        """Git's configuration that opens it, and nothing else."""
        at = f"http.{self.origin(project)}"
        known = [(f"{at}.sslCAInfo", str(self.ca))] if self.ca else []
        if self.pin:
            known += [(f"{at}.sslVerify", "false"), (f"{at}.pinnedPubkey", self.pin)]
        return [(f"{at}.extraHeader", f"Authorization: Bearer {self.token}"), (f"{at}.proxy", ""), *known]

    def environment(self, project: str, env: Mapping[str, str] | None = None) -> dict[str, str]:
        """An agent's environment, in which `git fetch origin` just works; settings that are there already stay."""
        return with_settings(env or {}, self.settings(project))


def pin_of(pem: str) -> str:
    """The key of a certificate, as Git is told to insist on it."""
    [signed, *_] = _within(ssl.PEM_cert_to_DER_cert(pem))
    fields = _within(signed)
    key = fields[6] if fields[0][0] == 0xA0 else fields[5]  # the version before it may be left out
    return "sha256//" + base64.b64encode(hashlib.sha256(key).digest()).decode()


def _within(element: bytes) -> list[bytes]:
    """The elements that a DER-encoded one is made of."""
    _, at, end = _head(element, 0)
    found = []
    while at < end:
        start, _, at = _head(element, at)
        found.append(element[start:at])
    return found


def _head(data: bytes, start: int) -> tuple[int, int, int]:
    """Where an element, its content and its end are."""
    length, content = data[start + 1], start + 2
    if length & 0x80:
        content += length & 0x7F
        length = int.from_bytes(data[start + 2 : content], "big")
    return start, content, content + length


def with_settings(env: Mapping[str, str], settings: Sequence[tuple[str, str]]) -> dict[str, str]:
    """An environment with more of Git's configuration in it."""
    first = int(env.get("GIT_CONFIG_COUNT", "0"))
    made = {**env, "GIT_CONFIG_COUNT": str(first + len(settings))}
    for number, (key, value) in enumerate(settings, first):
        made |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return made


class Repositories:
    """The node's copies."""

    def __init__(self, home: Home, host: Host) -> None:
        self._folder = home.path / "repos"
        self._host = host
        self._locks: dict[str, asyncio.Lock] = {}

    def path(self, project: str) -> Path:
        """Where a project's copy is: the repository that workspaces here are made from."""
        return self._folder / f"{ref_safe(project)}.git"

    async def refresh(self, project: str, access: Access, session: str, branches: Sequence[str]) -> Path:
        """Bring these branches, and what the session saved before, up to what the daemon has; sessions that come together fetch once."""
        origin, own = access.origin(project), [f"refs/ao/{kind}/{ref_safe(session)}" for kind in _OWN]
        names = [
            f"refs/{where}/{branch}" for branch in dict.fromkeys(branches) for where in ("heads", "remotes/origin")
        ]
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        asked = await self._git(
            self._folder, "ls-remote", "--refs", origin, *names, *own, access=access, project=project
        )
        pairs = (line.split("\t") for line in asked.splitlines())
        there = {name: sha for sha, name in pairs if name in (*names, *own)}
        async with self._lock(project):
            git = await self._made(project, sha256=any(len(sha) == 64 for sha in there.values()))
            here = await git.refs(*names, *own)
            wanted = [f"+{name}:{name}" for name, sha in there.items() if here.get(name) != sha]
            if wanted:
                options = ("--quiet", "--no-write-fetch-head", "--no-auto-maintenance", "--update-shallow")
                await self._git(git.repo, "fetch", *options, origin, *wanted, access=access, project=project)
            await self._forget_settled(git, session, here, there)
        return git.repo

    async def publish(self, project: str, access: Access, session: str, branch: str, workspace: Path) -> str | None:
        """Bring a workspace's branch to the daemon, as the session's own ref there; returns its commit. The daemon moves branches."""
        git, name, brought = Git(self._host, self.path(project)), f"refs/heads/{branch}", brought_ref(session)
        if find_layout(workspace) is None or await Git(self._host, workspace).resolve(name) is None:
            return None
        async with self._lock(project):
            await git.fetch(str(workspace), [f"+{name}:{brought}"], timeout=TIMEOUT)
            commit = (await git.refs(brought))[brought]
            await self._push(project, access, [f"{brought}:{brought}"])
            # What the daemon holds counts as safe here.
            await git.update_ref(name, commit, reason="ao: published")
        return commit

    async def push(self, project: str, access: Access, refs: Sequence[str]) -> None:
        """Bring refs of a session to the daemon. Raises `Denied` if its launch is over there, `Temporary` if it cannot be reached."""
        await self._push(project, access, [f"{ref}:{ref}" for ref in refs])

    async def save(self, project: str, access: Access, ref: str, name: str) -> None:
        """Bring what a ref here holds to the daemon under another name: what a launch that is over left (`refs/ao/stale/…`)."""
        await self._push(project, access, [f"{ref}:{name}"])

    async def forget(self, project: str, session: str, branch: str = "") -> None:
        """A session is gone from here, and the daemon has all of it: make its refs, and what they alone held, go too."""
        git = Git(self._host, self.path(project))
        if find_layout(git.repo) is None:
            return
        async with self._lock(project):
            await forget(git, session)
            own = [f"refs/ao/{kind}/{ref_safe(session)}" for kind in _OWN]
            found = await git.refs(*own, *([f"refs/heads/{branch}"] if branch else []))
            if found:
                await git.update_refs([f"delete {name} {sha}" for name, sha in found.items()])
        await self.tidy(project)

    async def tidy(self, project: str) -> None:
        """Make many packs few. Objects go only while no workspace is there: one may borrow what no branch has any more."""
        git = Git(self._host, self.path(project))
        if find_layout(git.repo) is None or len(list((git.repo / "objects" / "pack").glob("*.pack"))) < MANY:
            return
        async with self._lock(project):
            if await git.refs("refs/ao/keep"):
                await git.run("repack", "--geometric=2", "-d", "--quiet", timeout=None)
            else:
                await git.run("repack", "-a", "-d", "--quiet", timeout=None)
                await git.run("prune", "--expire=now", timeout=None)

    async def _push(self, project: str, access: Access, moved: Sequence[str]) -> None:
        options, where = ("--quiet", "--no-verify", "--atomic", "--force"), self.path(project)
        await self._git(where, "push", *options, access.origin(project), *moved, access=access, project=project)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _lock(self, project: str) -> asyncio.Lock:
        return self._locks.setdefault(project, asyncio.Lock())

    async def _made(self, project: str, *, sha256: bool) -> Git:
        path = self.path(project)
        if find_layout(path) is None:
            fresh = path.with_name(f".{path.name}.new")
            await asyncio.to_thread(remove_tree, fresh)
            kind = "--object-format=sha256" if sha256 else "--object-format=sha1"
            await Git(self._host, self._folder).run("init", "--quiet", "--bare", "--template=", kind, "--", str(fresh))
            fresh.replace(path)
        return Git(self._host, path)

    async def _forget_settled(self, git: Git, session: str, here: Mapping[str, str], there: Mapping[str, str]) -> None:
        """Saved work that was brought back elsewhere waits no more; what the daemon does not know stays."""
        rescue, restored, checkpoint = (
            f"refs/ao/{kind}/{ref_safe(session)}" for kind in ("rescue", "restored", "checkpoint")
        )
        known = rescue in here and rescue not in there and restored in there
        if known and await git.is_ancestor(here[rescue], there[restored]):
            await git.delete_ref(rescue, here[rescue])
        if checkpoint in here and checkpoint not in there:
            await git.delete_ref(checkpoint, here[checkpoint])

    async def _git(self, where: Path, *argv: str, access: Access, project: str) -> str:
        # A variable of the machine's would count for more than what is configured.
        env = access.environment(project, {"GIT_SSL_CAINFO": str(access.ca)} if access.ca else {})
        config = ("protocol.version=2", "credential.helper=", "http.followRedirects=false")
        try:
            done = await Git(self._host, where).run(*argv, config=config, env=env, timeout=TIMEOUT)
        except GitFailed as error:
            raise _explained(error, access) from None
        return done.out.decode(errors="surrogateescape")


def _explained(error: GitFailed, access: Access) -> AoError:
    if found := _REJECTED.search(error.stderr):
        return (Denied if "is over" in found[1] else Conflict)(f"the daemon refused it: {found[1]}")
    if found := _REFUSED.search(error.stderr):
        return Denied(f"the daemon refused it: {found[1]}")
    if _UNREACHABLE.search(error.stderr):
        return Temporary(
            f"the repository at {access.url} cannot be reached: {error.text.rpartition(': ')[2]}", "try again"
        )
    return error
