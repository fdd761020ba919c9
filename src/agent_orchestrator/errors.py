"""All errors that this package raises, as one class tree.

    AoError                 failed: exit 1, HTTP 500
    ├── UsageError          the request makes no sense: exit 2, HTTP 422
    │   └── ConfigError     … because of a configuration file; names file, line and key
    ├── NotFound            no such session, project, branch …: exit 3, HTTP 404
    ├── Conflict            it exists already, or is in the wrong state for this: exit 1, HTTP 409
    ├── Denied              not allowed: exit 1, HTTP 403
    ├── Unreachable         the daemon does not answer: exit 4, HTTP 503
    ├── Missing             a program, or another prerequisite on this machine, is missing: exit 1, HTTP 424
    └── Temporary           may work when tried again: exit 1, HTTP 503; effects retry it
        └── Doubtful        it is not known whether it was done

An error's text is one line that says what is wrong; `remedy` says what to do next.
"""

from __future__ import annotations

import errno


class AoError(Exception):
    """A failure; the text says what failed, `remedy` what to do."""

    category = "failed"
    exit_code = 1
    http_status = 500
    retryable = False

    def __init__(self, text: str, remedy: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.text}: {self.remedy}" if self.remedy else self.text


class UsageError(AoError):
    """The request is invalid."""

    category = "usage"
    exit_code = 2
    http_status = 422


class ConfigError(UsageError):
    """A configuration file is invalid; the text names file, line and key."""

    category = "config"


class NotFound(AoError):
    """The requested thing does not exist."""

    category = "not-found"
    exit_code = 3
    http_status = 404


class Conflict(AoError):
    """The thing exists already, or is in the wrong state for the request."""

    category = "conflict"
    http_status = 409


class Denied(AoError):
    """Not allowed with these credentials, or not without a person's approval."""

    category = "denied"
    http_status = 403


class Unreachable(AoError):
    """The daemon does not answer."""

    category = "unreachable"
    exit_code = 4
    http_status = 503


class Missing(AoError):
    """A program, or another prerequisite on this machine, is missing."""

    category = "missing"
    http_status = 424


class Temporary(AoError):
    """A failure that may not occur again on a retry."""

    category = "temporary"
    http_status = 503
    retryable = True

    def __init__(self, text: str, remedy: str = "", until: float | None = None) -> None:
        super().__init__(text, remedy)
        self.until = until
        """When a retry may succeed, if known: the end of a rate limit, for example."""


class Doubtful(Temporary):
    """A failure after which it is not known whether the action was done: a retry may do it twice."""

    category = "doubtful"


_SHORTAGE_REMEDIES = {
    errno.ENOSPC: "free some disk space",
    errno.EDQUOT: "free some disk space, or ask for more of it",
    errno.EROFS: "see why the disk is read-only, and mount it for writing",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the machine's limit of open files",
    errno.EIO: "see what the system's log says about the disk",
    errno.ENOMEM: "free some memory",
    errno.EAGAIN: "end some processes, or raise their limit (ulimit -u)",
}
"""Error number of a lack of resources → what to do about it."""


def resource_shortage(error: BaseException) -> Temporary | None:
    """Return an error that says which resource the machine lacks at the moment, or None if that is not the cause of
    `error`.

    It is a `Temporary`: the same may work later.
    """
    if isinstance(error, AoError) or not isinstance(error, OSError) or error.errno not in _SHORTAGE_REMEDIES:
        return None
    location = f": {error.filename}" if error.filename else ""
    return Temporary(f"{error.strerror}{location}", _SHORTAGE_REMEDIES[error.errno])
