"""Read and write commits: authors and dates are kept, no hook runs, and commits are signed only where that needs no passphrase."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.base.git.commands import Git, GitFailed
from agent_orchestrator.base.git.settings import GitConfig
from agent_orchestrator.changes.merge.commit_message import parse_person
from agent_orchestrator.changes.merge.model import Person
from agent_orchestrator.errors import Temporary

_FIELDS = ("%H", "%T", "%P", "%an", "%ae", "%ad", "%(trailers:key=Co-authored-by,valueonly,separator=%x1f)", "%B")
"""The fields of a commit that are read, in the format of `git log`."""
_NO_PROMPTS = {"SSH_ASKPASS_REQUIRE": "never", "SSH_ASKPASS": "", "DISPLAY": "", "WAYLAND_DISPLAY": "", "GPG_TTY": ""}
"""Environment in which signing programs cannot ask for a passphrase."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit with the data that a merge keeps."""

    id: str
    tree: str
    parents: tuple[str, ...]
    author: Person
    date: str
    """The author's date as Git stores it: seconds and time zone."""
    co_authors: tuple[Person, ...]
    """The co-authors that the message names."""
    message: str

    @property
    def subject(self) -> str:
        """Return the message's first line."""
        return self.message.strip().partition("\n")[0]


async def read_commits(git: Git, *revisions: str) -> list[Commit]:
    """Return the commits that `git log` shows for these arguments, in its order."""
    options = ("-z", f"--format={'%x1e'.join(_FIELDS)}", "--date=raw", "--encoding=UTF-8", "--no-show-signature")
    result = await git.run(
        "log", "--no-color", "--no-decorate", "--no-notes", "--no-mailmap", *options, *revisions, "--"
    )
    commits = []
    for entry in os.fsdecode(result.out).split("\0"):
        if entry:
            commit_id, tree, parents, name, address, date, others, message_text = entry.split("\x1e", len(_FIELDS) - 1)
            co_author_candidates = (parse_person(other) for other in others.split("\x1f"))
            author = (name or address.partition("@")[0] or "unknown", address)
            co_authors = tuple(other for other in co_author_candidates if other)
            commits.append(
                Commit(
                    commit_id, tree, tuple(parents.split()), author, date, co_authors, message_text.rstrip("\n") + "\n"
                )
            )
    return commits


class CommitWriter:
    """Writes commits as the user that Git is configured for."""

    def __init__(self, git: Git, config: GitConfig, work: Path) -> None:
        self._git = git
        self._config = config
        self._work = work
        self._is_signing = config.is_true("commit.gpgsign")
        self.notes: list[str] = []

    async def write(self, tree: str, parents: Sequence[str], text: str, author: Person, date: str | None = None) -> str:
        """Write a commit by this author and return its id; without a date it gets the present time."""
        name, address = self.user or author
        env = {
            "GIT_AUTHOR_NAME": author[0],
            "GIT_AUTHOR_EMAIL": author[1],
            "GIT_COMMITTER_NAME": name,
            "GIT_COMMITTER_EMAIL": address,
        }
        if date is not None:
            env["GIT_AUTHOR_DATE"] = f"@{date}"
        if self._is_signing:
            try:
                return await self._write_signed(tree, parents, text, env)
            except (GitFailed, Temporary):
                self._is_signing = False
                self.notes.append(
                    "not signed: commit.gpgsign is set, but signing here would have to ask for a passphrase"
                )
        return await self._git.commit_tree(tree, parents, text, env)

    @property
    def user(self) -> Person | None:
        """Return the user that Git is configured for, or None."""
        name, address = self._config.effective_value("user.name"), self._config.effective_value("user.email")
        return (name, address) if name and address else None

    async def _write_signed(self, tree: str, parents: Sequence[str], text: str, env: dict[str, str]) -> str:
        """Write a signed commit and return its id. Raises an error if signing would have to ask for a passphrase."""
        signature_format = self._config.effective_value("gpg.format") or "openpgp"
        if signature_format == "ssh":
            return await self._git.commit_tree(tree, parents, text, {**env, **_NO_PROMPTS}, sign=())
        program = (
            self._config.effective_value(f"gpg.{signature_format}.program")
            or self._config.effective_value("gpg.program")
            or "gpg"
        )
        if signature_format != "openpgp":
            raise Temporary(f"signing by {signature_format} may ask")
        with tempfile.TemporaryDirectory(dir=self._work, prefix="sign-") as folder:
            wrapper = Path(folder, "gpg")
            wrapper.write_text(f'#!/bin/sh\nexec {shlex.quote(program)} --batch --no-tty --pinentry-mode error "$@"\n')
            wrapper.chmod(0o700)
            settings = (f"gpg.program={wrapper}", f"gpg.openpgp.program={wrapper}")
            return await self._git.commit_tree(tree, parents, text, {**env, **_NO_PROMPTS}, sign=settings)
