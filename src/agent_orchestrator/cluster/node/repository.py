"""A node's own copy of each project's repository: bare, shared by all sessions on the node, filled by the daemon (`server/routes/git.py`).

Workspaces are clones that borrow its objects, so a further session of a project fetches only what is new. Its branches are what the
daemon has; what sessions on the node produced is under `refs/ao/` until the daemon has it too. An object that a workspace may borrow is
never removed while there is a workspace (`refs/ao/keep/`).

Git gets the token by its environment only: it is neither on the disk nor on a command line.
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
from agent_orchestrator.base.git.refs import escape_for_ref, find_layout
from agent_orchestrator.base.home import Home
from agent_orchestrator.errors import AoError, Conflict, Denied, Temporary
from agent_orchestrator.plugins.workspaces.branch_publication import delete_refs, workspace_ref
from agent_orchestrator.plugins.workspaces.git_workspace import remove_tree
from agent_orchestrator.protocols.host import Host

GIT_TIMEOUT = 1800.0
"""Seconds that a fetch or a push may take."""
REPACK_THRESHOLD = 20
"""The number of packs from which on they are combined."""
_SESSION_KINDS = ("checkpoint", "rescue", "restored")
"""Kinds of refs below `refs/ao/` that belong to one session."""
_REJECTED = re.compile(r"\[remote rejected\][^\n]*\((.*)\)")
_REFUSED = re.compile(r"^remote: (.*)\n(?:.*\n)*fatal: .*(?:error: 403|Authentication failed)", re.MULTILINE)
_UNREACHABLE = re.compile(
    r"unable to access|Could not resolve|early EOF|unexpected disconnect|RPC failed|hung up|error: 5\d\d|could not read Username"
)


@dataclass(frozen=True, slots=True)
class RepositoryAccess:
    """How to reach the daemon on behalf of one session."""

    url: str
    """The daemon's address."""
    token: str
    ca: Path | None = None
    """A file with the certificate of the authority that the daemon is verified with; None for the system's authorities."""
    pin: str = ""
    """The daemon's own key (`pin_of`); if set, it is the only way in which the daemon is verified."""

    def origin(self, project: str) -> str:
        """Return the address of a project's repository."""
        return f"{self.url.rstrip('/')}/git/{quote(project, safe='')}.git"

    def git_settings(self, project: str) -> list[tuple[str, str]]:
        """Return the Git configuration that gives access to this repository only."""
        prefix = f"http.{self.origin(project)}"
        verification = [(f"{prefix}.sslCAInfo", str(self.ca))] if self.ca else []
        if self.pin:
            verification += [(f"{prefix}.sslVerify", "false"), (f"{prefix}.pinnedPubkey", self.pin)]
        return [
            (f"{prefix}.extraHeader", f"Authorization: Bearer {self.token}"),
            (f"{prefix}.proxy", ""),
            *verification,
        ]

    def agent_environment(self, project: str, env: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return an agent's environment in which `git fetch origin` works; settings in `env` are kept."""
        return with_git_settings(env or {}, self.git_settings(project))


def pin_of(pem: str) -> str:
    """Return the pin of a certificate's key, in the format of Git's `http.pinnedPubkey`."""
    [signed, *_] = _der_elements(ssl.PEM_cert_to_DER_cert(pem))
    fields = _der_elements(signed)
    key = fields[6] if fields[0][0] == 0xA0 else fields[5]  # the version field in front of it is optional
    return "sha256//" + base64.b64encode(hashlib.sha256(key).digest()).decode()


def _der_elements(element: bytes) -> list[bytes]:
    """Return the elements that a DER-encoded element consists of."""
    _, position, end = _der_bounds(element, 0)
    elements = []
    while position < end:
        start, _, position = _der_bounds(element, position)
        elements.append(element[start:position])
    return elements


def _der_bounds(data: bytes, start: int) -> tuple[int, int, int]:
    """Return where a DER element starts, where its content starts, and where it ends."""
    length, content = data[start + 1], start + 2
    if length & 0x80:
        content += length & 0x7F
        length = int.from_bytes(data[start + 2 : content], "big")
    return start, content, content + length


def with_git_settings(env: Mapping[str, str], settings: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return an environment with more Git configuration in it."""
    first = int(env.get("GIT_CONFIG_COUNT", "0"))
    environment = {**env, "GIT_CONFIG_COUNT": str(first + len(settings))}
    for number, (key, value) in enumerate(settings, first):
        environment |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return environment


class Repositories:
    """The node's copies of all projects' repositories."""

    def __init__(self, home: Home, host: Host) -> None:
        self._folder = home.path / "repos"
        self._host = host
        self._locks: dict[str, asyncio.Lock] = {}

    def path(self, project: str) -> Path:
        """Return the path of a project's copy: the repository that workspaces on the node are made from."""
        return self._folder / f"{escape_for_ref(project)}.git"

    async def refresh(self, project: str, access: RepositoryAccess, session: str, branches: Sequence[str]) -> Path:
        """Fetch these branches and the session's saved work from the daemon; return the copy's path.

        Refs that another session has fetched in the meantime are not fetched again.
        """
        origin, session_refs = (
            access.origin(project),
            [f"refs/ao/{kind}/{escape_for_ref(session)}" for kind in _SESSION_KINDS],
        )
        names = [
            f"refs/{namespace}/{branch}"
            for branch in dict.fromkeys(branches)
            for namespace in ("heads", "remotes/origin")
        ]
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        listing = await self._git(
            self._folder, "ls-remote", "--refs", origin, *names, *session_refs, access=access, project=project
        )
        pairs = (line.split("\t") for line in listing.splitlines())
        daemon_refs = {name: sha for sha, name in pairs if name in (*names, *session_refs)}
        async with self._lock_of(project):
            git = await self._open_or_create(project, sha256=any(len(sha) == 64 for sha in daemon_refs.values()))
            local_refs = await git.refs(*names, *session_refs)
            refspecs = [f"+{name}:{name}" for name, sha in daemon_refs.items() if local_refs.get(name) != sha]
            if refspecs:
                options = ("--quiet", "--no-write-fetch-head", "--no-auto-maintenance", "--update-shallow")
                await self._git(git.repo, "fetch", *options, origin, *refspecs, access=access, project=project)
            await self._delete_settled(git, session, local_refs, daemon_refs)
        return git.repo

    async def publish(
        self, project: str, access: RepositoryAccess, session: str, branch: str, workspace: Path
    ) -> str | None:
        """Push a workspace's branch to the session's own ref at the daemon; return its commit, or None if there is none.

        The daemon moves its branch itself.
        """
        git, name, own_ref = Git(self._host, self.path(project)), f"refs/heads/{branch}", workspace_ref(session)
        if find_layout(workspace) is None or await Git(self._host, workspace).resolve(name) is None:
            return None
        async with self._lock_of(project):
            await git.fetch(str(workspace), [f"+{name}:{own_ref}"], timeout=GIT_TIMEOUT)
            commit = (await git.refs(own_ref))[own_ref]
            await self._push(project, access, [f"{own_ref}:{own_ref}"])
            # Set this branch here too: commits that the daemon has count as safe on the node.
            await git.update_ref(name, commit, reason="ao: published")
        return commit

    async def push(self, project: str, access: RepositoryAccess, refs: Sequence[str]) -> None:
        """Push refs of a session to the daemon.

        Raises `Denied` if its launch is over there, `Temporary` if the daemon cannot be reached.
        """
        await self._push(project, access, [f"{ref}:{ref}" for ref in refs])

    async def save(self, project: str, access: RepositoryAccess, ref: str, name: str) -> None:
        """Push a ref of this copy to the daemon under another name (`refs/ao/stale/…`): work that an outdated launch left."""
        await self._push(project, access, [f"{ref}:{name}"])

    async def forget(self, project: str, session: str, branch: str = "") -> None:
        """Remove the refs of a session that has left this node, after the daemon has its work, and objects that only they held."""
        git = Git(self._host, self.path(project))
        if find_layout(git.repo) is None:
            return
        async with self._lock_of(project):
            await delete_refs(git, session)
            session_refs = [f"refs/ao/{kind}/{escape_for_ref(session)}" for kind in _SESSION_KINDS]
            refs = await git.refs(*session_refs, *([f"refs/heads/{branch}"] if branch else []))
            if refs:
                await git.update_refs([f"delete {name} {sha}" for name, sha in refs.items()])
        await self.repack(project)

    async def repack(self, project: str) -> None:
        """Combine many packs into few; remove objects only while there is no workspace, which may borrow unreferenced ones."""
        git = Git(self._host, self.path(project))
        if (
            find_layout(git.repo) is None
            or len(list((git.repo / "objects" / "pack").glob("*.pack"))) < REPACK_THRESHOLD
        ):
            return
        async with self._lock_of(project):
            if await git.refs("refs/ao/keep"):
                await git.run("repack", "--geometric=2", "-d", "--quiet", timeout=None)
            else:
                await git.run("repack", "-a", "-d", "--quiet", timeout=None)
                await git.run("prune", "--expire=now", timeout=None)

    async def _push(self, project: str, access: RepositoryAccess, refspecs: Sequence[str]) -> None:
        """Push these refspecs to the daemon, all or none."""
        options, path = ("--quiet", "--no-verify", "--atomic", "--force"), self.path(project)
        await self._git(path, "push", *options, access.origin(project), *refspecs, access=access, project=project)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _lock_of(self, project: str) -> asyncio.Lock:
        """Return the lock of a project's copy."""
        return self._locks.setdefault(project, asyncio.Lock())

    async def _open_or_create(self, project: str, *, sha256: bool) -> Git:
        """Return a project's copy; create it if it does not exist."""
        path = self.path(project)
        if find_layout(path) is None:
            draft = path.with_name(f".{path.name}.new")
            await asyncio.to_thread(remove_tree, draft)
            object_format = "--object-format=sha256" if sha256 else "--object-format=sha1"
            await Git(self._host, self._folder).run(
                "init", "--quiet", "--bare", "--template=", object_format, "--", str(draft)
            )
            draft.replace(path)
        return Git(self._host, path)

    async def _delete_settled(
        self, git: Git, session: str, local_refs: Mapping[str, str], daemon_refs: Mapping[str, str]
    ) -> None:
        """Delete a rescue that was restored elsewhere, and a checkpoint that the daemon does not have; keep other rescues."""
        rescue, restored, checkpoint = (
            f"refs/ao/{kind}/{escape_for_ref(session)}" for kind in ("rescue", "restored", "checkpoint")
        )
        is_restored = rescue in local_refs and rescue not in daemon_refs and restored in daemon_refs
        if is_restored and await git.is_ancestor(local_refs[rescue], daemon_refs[restored]):
            await git.delete_ref(rescue, local_refs[rescue])
        if checkpoint in local_refs and checkpoint not in daemon_refs:
            await git.delete_ref(checkpoint, local_refs[checkpoint])

    async def _git(self, folder: Path, *argv: str, access: RepositoryAccess, project: str) -> str:
        # The variable is set because one of the machine's would override the configuration.
        """Run Git with access to the daemon and return its output; raise an error that explains a failed connection."""
        env = access.agent_environment(project, {"GIT_SSL_CAINFO": str(access.ca)} if access.ca else {})
        config = ("protocol.version=2", "credential.helper=", "http.followRedirects=false")
        try:
            completed = await Git(self._host, folder).run(*argv, config=config, env=env, timeout=GIT_TIMEOUT)
        except GitFailed as error:
            raise _explain(error, access) from None
        return completed.out.decode(errors="surrogateescape")


def _explain(error: GitFailed, access: RepositoryAccess) -> AoError:
    """Return a Git failure as `Denied`, `Conflict` or `Temporary`, if its output shows which."""
    if match := _REJECTED.search(error.stderr):
        return (Denied if "is over" in match[1] else Conflict)(f"the daemon refused it: {match[1]}")
    if match := _REFUSED.search(error.stderr):
        return Denied(f"the daemon refused it: {match[1]}")
    if _UNREACHABLE.search(error.stderr):
        return Temporary(
            f"the repository at {access.url} cannot be reached: {error.text.rpartition(': ')[2]}", "try again"
        )
    return error
