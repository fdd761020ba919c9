"""Find out whether a file is part of a Git repository, because then it may have come with that repository and is not the user's own."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

from agent_orchestrator.base.files.safe import read_regular_file
from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.git.refs import find_layout
from agent_orchestrator.protocols.host import Host


async def is_tracked(host: Host, file: Path, within: Path | None = None) -> bool:
    """Return whether a file is part of a Git repository around it, so that it may have come with that repository.

    With `within`, only repositories below that folder count. A file that Git may be writing at the moment counts as tracked.
    """
    real = file.parent.resolve() / file.name
    roots = [folder for folder in real.parents if (folder / ".git").exists() and within in (None, *folder.parents)]
    for root in roots:
        if not await _wait_for_index(root):
            return True
        name, git = str(real.relative_to(root)), Git(host, root)
        env = {"GIT_LITERAL_PATHSPECS": "1"}
        listed = await git.run("ls-files", "--error-unmatch", "--", name, env=env, ok=(0, 1))
        if listed.code == 0 or await _has_content(git, real, name):
            return True
    return False


async def _has_content(git: Git, file: Path, name: str) -> bool:
    """Return whether a repository has exactly this content as an object, even if the path is not tracked now.

    That is the state after a pull that was interrupted or reset. A file that Git filters on checkout counts as stored.
    """
    attributes = await git.run("check-attr", "-z", "filter", "ident", "working-tree-encoding", "--", name)
    if set(attributes.out.split(b"\0")[2::3]) - {b"unspecified", b"unset"}:
        return True  # the stored object differs from what Git writes into the checkout
    try:
        data = await asyncio.to_thread(read_regular_file, file.resolve())
    except OSError:
        return False
    forms = [b"blob %d\0%b" % (len(form), form) for form in (data, data.replace(b"\r\n", b"\n"))]
    objects = [new(form, usedforsecurity=False).hexdigest() for form in forms for new in (hashlib.sha1, hashlib.sha256)]
    object_types = await git.run(
        *("cat-file", "--batch-check=%(objecttype)"),
        input="".join(f"{object_id}\n" for object_id in objects).encode(),
        config=("protocol.allow=never",),  # do not fetch missing objects from a remote
        ok=(0, 128),
    )
    return b"blob" in object_types.out.split()


async def _wait_for_index(root: Path) -> bool:
    """Wait up to about a second until no Git command holds the index lock; return whether it is free.

    A pull or a clone writes files before it lists them in the index, and holds the lock meanwhile.
    """
    layout, pause = find_layout(root), 0.02
    while layout is not None and os.path.lexists(layout.git_dir / "index.lock"):
        if pause > 1:
            return False
        await asyncio.sleep(pause)
        pause *= 2
    return True
