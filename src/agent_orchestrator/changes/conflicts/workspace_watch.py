"""Call back when a file of a workspace changes, in any folder that Git does not ignore (`WorkspaceWatch`)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from agent_orchestrator.base.files.watch import FileWatcher, stop_nothing
from agent_orchestrator.base.git.commands import Git

MAX_FOLDERS = 4000
"""Maximum number of watched folders per workspace; beyond it the workspace is read after the agent's turns instead."""
_BATCH_SIZE = 200


def max_watches() -> int:
    """Return how many folders may be watched in total: half of what the kernel allows one user."""
    try:
        return int(Path("/proc/sys/fs/inotify/max_user_watches").read_text()) // 2
    except (OSError, ValueError):
        return MAX_FOLDERS


class WorkspaceWatch:
    """Watches the folders of one workspace."""

    def __init__(self, watch: FileWatcher, git: Git, changed: Callable[[], None], most: int) -> None:
        self.git = git
        self.is_complete = False
        """Whether every change is reported, so that without a report nothing has changed."""
        self._watch = watch
        self._changed = changed
        self._max_folders = min(most, MAX_FOLDERS)
        self._folders: dict[str, tuple[int, Callable[[], object]]] = {}
        """For each watched folder, relative to the workspace: its inode and the function that ends its watch."""
        self._ignored: dict[str, int] = {}
        """Inodes of the folders that Git ignores."""
        self._changed_folders: set[str] = set()
        self._closed = False

    def __len__(self) -> int:
        """Return the number of watched folders."""
        return len(self._folders)

    async def open(self, folders: Iterable[str]) -> None:
        """Watch the workspace and these folders in it."""
        if sys.platform != "linux":
            stop = self._watch.tree(self.git.repo, self._changed)
            self._folders[""] = (0, stop)
            return
        self.is_complete = True
        await self._watch_folders(["", *folders])
        self._changed_folders.update(self._folders)  # so that the first `follow` finds untracked folders

    def close(self) -> None:
        """End all watches."""
        self._closed = True
        for _, stop in self._folders.values():
            stop()
        self._folders.clear()

    async def watch_new_folders(self) -> None:
        """Watch the folders that were created since the last call where something changed."""
        changed_folders, self._changed_folders = self._changed_folders, set()
        while changed_folders:
            new_folders = await asyncio.to_thread(self._find_new_folders, changed_folders)
            watchable_folders = await self._not_ignored(new_folders)
            self._ignored |= {folder: inode for folder, inode in new_folders.items() if folder not in watchable_folders}
            await self._watch_folders(watchable_folders)
            changed_folders = set(watchable_folders)

    def _find_new_folders(self, changed_folders: Iterable[str]) -> dict[str, int]:
        """Return the subfolders that are neither watched nor known to be ignored, or that were replaced, with their inodes."""
        new_folders: dict[str, int] = {}
        for parent in changed_folders:
            try:
                entries = list(os.scandir(self.git.repo / parent))
            except OSError:
                continue
            for entry in entries:
                name = f"{parent}/{entry.name}" if parent else entry.name
                if entry.name != ".git" and entry.is_dir(follow_symlinks=False):
                    watched = self._folders.get(name)
                    if entry.inode() not in (watched and watched[0], self._ignored.get(name)):
                        new_folders[name] = entry.inode()
        return new_folders

    async def _not_ignored(self, folders: Iterable[str]) -> list[str]:
        """Return the folders that Git does not ignore."""
        input_names = os.fsencode("".join(f"{folder}/\0" for folder in folders))
        if not input_names:
            return []
        result = await self.git.run("check-ignore", "-z", "--stdin", input=input_names, ok=(0, 1, 128))
        ignored = {name.rstrip("/") for name in os.fsdecode(result.out).split("\0")}
        return [folder for folder in folders if folder not in ignored]

    async def _watch_folders(self, folders: Iterable[str]) -> None:
        """Watch these folders; past the maximum, stop and set `complete` to False."""
        for number, folder in enumerate(folders, 1):
            if self._closed:
                return
            if len(self._folders) >= self._max_folders:
                self.is_complete = False
            if not self.is_complete:
                return
            self._watch_folder(folder)
            if not number % _BATCH_SIZE:
                await asyncio.sleep(0)

    def _watch_folder(self, folder: str) -> None:
        """Watch one folder, replacing an earlier watch of the same name."""
        path = self.git.repo / folder
        try:
            inode = path.lstat().st_ino
        except OSError:
            return
        if previous := self._folders.pop(folder, None):
            previous[1]()

        def on_change() -> None:
            """Record a change in the folder and report it."""
            self._changed_folders.add(folder)
            self._changed()

        stop = self._watch.watch_folder(path, on_change)
        self.is_complete = self.is_complete and stop is not stop_nothing
        self._folders[folder] = (inode, stop)
