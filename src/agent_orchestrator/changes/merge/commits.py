"""Commits read and written: authors and dates kept, no hook run, signed only where signing asks nobody."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.base.git.commands import Config, Git, GitFailed
from agent_orchestrator.changes.merge.message import person
from agent_orchestrator.changes.merge.model import Person
from agent_orchestrator.errors import Temporary

_FIELDS = ("%H", "%T", "%P", "%an", "%ae", "%ad", "%(trailers:key=Co-authored-by,valueonly,separator=%x1f)", "%B")
_SILENT = {"SSH_ASKPASS_REQUIRE": "never", "SSH_ASKPASS": "", "DISPLAY": "", "WAYLAND_DISPLAY": "", "GPG_TTY": ""}


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit as far as it is carried over."""

    id: str
    tree: str
    parents: tuple[str, ...]
    author: Person
    date: str
    """The author's, as Git stores it: seconds and time zone."""
    others: tuple[Person, ...]
    """Who is named as co-author."""
    message: str

    @property
    def subject(self) -> str:
        """The message's first line."""
        return self.message.strip().partition("\n")[0]


async def read_commits(git: Git, *revisions: str) -> list[Commit]:
    """The commits that `git log` shows for these arguments, in its order."""
    options = ("-z", f"--format={'%x1e'.join(_FIELDS)}", "--date=raw", "--encoding=UTF-8", "--no-show-signature")
    done = await git.run("log", "--no-color", "--no-decorate", "--no-notes", "--no-mailmap", *options, *revisions, "--")
    found = []
    for entry in os.fsdecode(done.out).split("\0"):
        if entry:
            commit, tree, parents, name, address, date, others, text = entry.split("\x1e", len(_FIELDS) - 1)
            named = (person(other) for other in others.split("\x1f"))
            author = (name or address.partition("@")[0] or "unknown", address)
            co_authors = tuple(other for other in named if other)
            found.append(
                Commit(commit, tree, tuple(parents.split()), author, date, co_authors, text.rstrip("\n") + "\n")
            )
    return found


class Writer:
    """Writes commits as the user that Git is configured for."""

    def __init__(self, git: Git, config: Config, work: Path) -> None:
        self._git = git
        self._config = config
        self._work = work
        self._signs = config.true("commit.gpgsign")
        self.notes: list[str] = []

    async def write(self, tree: str, parents: Sequence[str], text: str, author: Person, date: str | None = None) -> str:
        """Store a commit by this author; without a date: now."""
        name, address = self.user or author
        env = {
            "GIT_AUTHOR_NAME": author[0],
            "GIT_AUTHOR_EMAIL": author[1],
            "GIT_COMMITTER_NAME": name,
            "GIT_COMMITTER_EMAIL": address,
        }
        if date is not None:
            env["GIT_AUTHOR_DATE"] = f"@{date}"
        if self._signs:
            try:
                return await self._write_signed(tree, parents, text, env)
            except (GitFailed, Temporary):
                self._signs = False
                self.notes.append(
                    "not signed: commit.gpgsign is set, but signing here would have to ask for a passphrase"
                )
        return await self._git.commit_tree(tree, parents, text, env)

    @property
    def user(self) -> Person | None:
        """Who Git is configured for."""
        name, address = self._config.last("user.name"), self._config.last("user.email")
        return (name, address) if name and address else None

    async def _write_signed(self, tree: str, parents: Sequence[str], text: str, env: dict[str, str]) -> str:
        kind = self._config.last("gpg.format") or "openpgp"
        if kind == "ssh":
            return await self._git.commit_tree(tree, parents, text, {**env, **_SILENT}, sign=())
        program = self._config.last(f"gpg.{kind}.program") or self._config.last("gpg.program") or "gpg"
        if kind != "openpgp":
            raise Temporary(f"signing by {kind} may ask")
        with tempfile.TemporaryDirectory(dir=self._work, prefix="sign-") as folder:
            silent = Path(folder, "gpg")
            silent.write_text(f'#!/bin/sh\nexec {shlex.quote(program)} --batch --no-tty --pinentry-mode error "$@"\n')
            silent.chmod(0o700)
            settings = (f"gpg.program={silent}", f"gpg.openpgp.program={silent}")
            return await self._git.commit_tree(tree, parents, text, {**env, **_SILENT}, sign=settings)
