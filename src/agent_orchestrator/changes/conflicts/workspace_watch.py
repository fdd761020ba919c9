"""Told when a file of a workspace changes, in any folder that Git does not ignore."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from agent_orchestrator.base.files.watch import Watch, unseen
from agent_orchestrator.base.git.commands import Git

MOST_FOLDERS = 4000
"""Of one workspace; with more, not all of it is watched, and the agent's turns say when to look."""
_AT_A_TIME = 200


def room() -> int:
    """How many folders may be watched at all: half of what the kernel allows one user."""
    try:
        return int(Path("/proc/sys/fs/inotify/max_user_watches").read_text()) // 2
    except (OSError, ValueError):
        return MOST_FOLDERS


class WorkspaceWatch:
    """One workspace's folders."""

    def __init__(self, watch: Watch, git: Git, changed: Callable[[], None], most: int) -> None:
        self.git = git
        self.complete = False
        """Every change is told: what was not told of needs no look."""
        self._watch = watch
        self._changed = changed
        self._most = min(most, MOST_FOLDERS)
        self._folders: dict[str, tuple[int, Callable[[], None]]] = {}
        """Folder below the workspace → its inode, and what ends its watch."""
        self._ignored: dict[str, int] = {}
        """The same of folders that Git ignores."""
        self._touched: set[str] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._folders)

    async def open(self, folders: Iterable[str]) -> None:
        """Watch the workspace and these folders of it."""
        if sys.platform != "linux":
            stop = self._watch.tree(self.git.repo, self._changed)
            self._folders[""] = (0, stop)
            return
        self.complete = True
        await self._add(["", *folders])
        self._touched.update(self._folders)  # what is untracked there is found at the first look

    def close(self) -> None:
        """Watch no more."""
        self._closed = True
        for _, stop in self._folders.values():
            stop()
        self._folders.clear()

    async def follow(self) -> None:
        """Watch the folders that were made since, where something changed."""
        touched, self._touched = self._touched, set()
        while touched:
            made = await asyncio.to_thread(self._unknown, touched)
            kept = await self._not_ignored(made)
            self._ignored |= {folder: inode for folder, inode in made.items() if folder not in kept}
            await self._add(kept)
            touched = set(kept)

    def _unknown(self, touched: Iterable[str]) -> dict[str, int]:
        """Folders in the touched ones that are not known, or are other ones than those that were."""
        found: dict[str, int] = {}
        for above in touched:
            try:
                entries = list(os.scandir(self.git.repo / above))
            except OSError:
                continue
            for entry in entries:
                name = f"{above}/{entry.name}" if above else entry.name
                if entry.name != ".git" and entry.is_dir(follow_symlinks=False):
                    watched = self._folders.get(name)
                    if entry.inode() not in (watched and watched[0], self._ignored.get(name)):
                        found[name] = entry.inode()
        return found

    async def _not_ignored(self, folders: Iterable[str]) -> list[str]:
        feed = os.fsencode("".join(f"{folder}/\0" for folder in folders))
        if not feed:
            return []
        done = await self.git.run("check-ignore", "-z", "--stdin", input=feed, ok=(0, 1, 128))
        ignored = {name.rstrip("/") for name in os.fsdecode(done.out).split("\0")}
        return [folder for folder in folders if folder not in ignored]

    async def _add(self, folders: Iterable[str]) -> None:
        for number, folder in enumerate(folders, 1):
            if self._closed:
                return
            if len(self._folders) >= self._most:
                self.complete = False
            if not self.complete:
                return
            self._watch_one(folder)
            if not number % _AT_A_TIME:
                await asyncio.sleep(0)

    def _watch_one(self, folder: str) -> None:
        path = self.git.repo / folder
        try:
            inode = path.lstat().st_ino
        except OSError:
            return
        if known := self._folders.pop(folder, None):
            known[1]()

        def told() -> None:
            self._touched.add(folder)
            self._changed()

        stop = self._watch.folder(path, told)
        self.complete = self.complete and stop is not unseen
        self._folders[folder] = (inode, stop)
