"""Configuration and environment of Git commands: no prompts, nothing else started, nothing taken over from other repositories."""

from __future__ import annotations

import os

from agent_orchestrator.base.git.refs import Layout as Layout
from agent_orchestrator.base.git.refs import find_layout as find_layout
from agent_orchestrator.base.git.refs import is_valid_branch as is_valid_branch
from agent_orchestrator.base.git.refs import read_head as read_head

_REPOSITORY_VARIABLES = {
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_CONFIG",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_COUNT",
    "GIT_OBJECT_DIRECTORY",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_GRAFT_FILE",
    "GIT_INDEX_FILE",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_REPLACE_REF_BASE",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_EXTERNAL_DIFF",
    "GIT_LITERAL_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
}
"""Environment variables that would point Git at another repository; never passed on."""
_NO_PROMPTS = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ASKPASS": "",
    "GCM_INTERACTIVE": "never",
    "GIT_EDITOR": ":",
    "GIT_PAGER": "cat",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "LC_ALL": "C",
}
"""Environment of every command: no prompts, editor, pager or optional locks; messages in English."""
SETTINGS = {
    "core.hookspath": os.devnull,
    "core.fsmonitor": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.ext.allow": "never",
    "submodule.recurse": "false",
}
"""Configuration of every command; it overrides what the repository configures."""
CONFIG_OPTIONS = tuple(part for key, value in SETTINGS.items() for part in ("-c", f"{key}={value}"))
_TOLERATED_FSCK_ERRORS = (
    "badDate",
    "badTimezone",
    "missingEmail",
    "missingNameBeforeEmail",
    "missingSpaceBeforeDate",
    "missingSpaceBeforeEmail",
    "zeroPaddedFilemode",
    "zeroPaddedDate",
    "missingTaggerEntry",
    "nullSha1",
    "badTagName",
)
FSCK_CONFIG = ("fetch.fsckObjects=true", *(f"fetch.fsck.{name}=warn" for name in _TOLERATED_FSCK_ERRORS))
"""Configuration for fetching from a repository in which an agent writes objects: malformed objects are rejected, except for defects
that are common in old histories."""
LFS_OFF_CONFIG = ("filter.lfs.smudge=", "filter.lfs.clean=", "filter.lfs.process=", "filter.lfs.required=false")
"""Configuration that keeps large-file pointers as they are, for machines without git-lfs."""

PARALLEL_CHECKOUT_CONFIG = f"checkout.workers={min(8, os.cpu_count() or 1)}"
"""Configuration for checkouts of very many files: one process per core, as a single one waits for the disk. At most 8, because more
gain nothing and slow down the next workspace. Git starts none for fewer than a hundred files."""
SPARSE_CHECKOUT_CONFIG = ("core.sparseCheckout=true", "core.sparseCheckoutCone=true")
"""Configuration of a checkout that has only some folders. Passed to each command: storing it in a worktree would need a setting that
all worktrees of the repository share."""
SPARSE_MARK = "ao-sparse"
"""Name of a file in a checkout's Git folder: it marks a checkout that we made sparse."""


class GitConfig(dict[str, list[str]]):
    """Git's effective configuration: every value of every key, keys as Git prints them."""

    def effective_value(self, key: str) -> str | None:
        """Return the value of a key that takes effect, or None if it is not set."""
        values = self.get(key)
        return values[-1] if values else None

    def is_true(self, key: str) -> bool:
        """Return whether a boolean key is switched on."""
        return (self.effective_value(key) or "").lower() in ("true", "yes", "on", "1")


def clean_environment() -> dict[str, str]:
    """Return our environment without the variables that would point Git at another repository, and with prompts
    switched off.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _REPOSITORY_VARIABLES}
    return {**environment, **_NO_PROMPTS}


def noninteractive_ssh(config: GitConfig | None) -> dict[str, str]:
    """Return environment that keeps ssh from prompting, or {} if the user configured an ssh command."""
    is_configured = (
        "GIT_SSH_COMMAND" in os.environ
        or "GIT_SSH" in os.environ
        or (config is not None and config.effective_value("core.sshcommand"))
    )
    return {} if is_configured else {"GIT_SSH_COMMAND": "ssh -oBatchMode=yes"}
