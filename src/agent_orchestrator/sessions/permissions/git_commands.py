"""What a Git command that stays in the workspace and on its own branch names, and what it changes there. Pure.

No word names a path outside, or steers how paths are matched.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agent_orchestrator.sessions.permissions.git_options import FORMS, TEXT, Form
from agent_orchestrator.sessions.permissions.shell_words import Word

_MOVING = Form(
    frozenset(("--continue", "--abort", "--skip", "--no-edit", "--ff-only", "--no-ff", "--ff", "--quiet", "--no-stat"))
)
_OTHER = re.compile(r"[A-Za-z0-9][\w./-]*(?:[~^]\d{0,4})*")
"""The own branch brought up to date with one other: `git rebase A B` would move B."""
_SILENT = frozenset(
    (
        "GIT_EDITOR=true",
        "GIT_EDITOR=:",
        "GIT_SEQUENCE_EDITOR=true",
        "GIT_SEQUENCE_EDITOR=:",
        "GIT_PAGER=cat",
        "PAGER=cat",
    )
)
"""Variables before a command that only keep it from waiting for somebody."""


@dataclass(frozen=True, slots=True)
class Named:
    """The paths that a command names, from the workspace on: all of them (revisions, too), those of which it changes the files, and
    those that it takes out of a revision: these are to be single files.
    """

    paths: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    folder: str = ""
    """Where in the workspace it is run."""
    places: tuple[str, ...] = ()
    """What whole folders may become, with all that is in them."""

    def __add__(self, other: Named) -> Named:
        return Named(
            self.paths + other.paths,
            self.changed + other.changed,
            self.files + other.files,
            self.folder,
            self.places + other.places,
        )


def own_branch(words: Sequence[Word], workspace: str = "", folder: str = "") -> Named | None:
    """What a Git command names, where it changes nothing but the session's own branch and files; none: it may do more.

    `folder` is where in the workspace it is run.
    """
    rest = list(words)
    while rest and rest[0].text in _SILENT and not rest[0].quoted:
        rest.pop(0)
    if not rest or rest[0] != Word("git"):
        return None
    rest.pop(0)
    while rest and rest[0] in (Word("--no-pager"), Word("-P")):
        rest.pop(0)
    if not rest or rest[0].quoted:
        return None
    name, given = rest[0].text, rest[1:]
    if name in ("rebase", "merge"):
        return _up_to_date(given)
    if name == "stash":
        return _stash(given)
    form = FORMS.get(name)
    read = form and _read(form, given, workspace, folder)
    if not read or not _NEEDS.get(name, _nothing)(read):
        return None
    return _named(name, read)


class _Path(NamedTuple):
    """A word that is no option: as it stands, and from the workspace on."""

    text: str
    place: str


@dataclass(frozen=True, slots=True)
class _Read:
    """A command's words, told apart."""

    options: tuple[str, ...] = ()
    before: list[_Path] = field(default_factory=list)
    after: list[_Path] = field(default_factory=list)
    """Words before and behind `--`."""

    @property
    def paths(self) -> tuple[_Path, ...]:
        return (*self.before, *self.after)


def _read(form: Form, given: Sequence[Word], workspace: str, folder: str) -> _Read | None:
    options: list[str] = []
    before: list[Word] = []
    after: list[Word] | None = None
    words = list(given)
    while words:
        word = words.pop(0)
        if after is not None:
            after.append(word)
        elif word.text == "--":
            after = []
        elif not word.text.startswith("-"):
            before.append(word)
        else:
            taken = None if word.several else _option(form, word.text, words)
            if taken is None:
                return None
            options.append(taken)
    if form.free and "-e" not in options:
        before = before[form.free :]
    read = _Read(tuple(options))
    for named, found in ((before, read.before), (after or [], read.after)):
        for word in named:
            path = inside(word, workspace)
            if path is None or not form.words:
                return None
            here = folder and not word.text.startswith("/")
            found.append(_Path(path, f"{folder}/{path}" if here else path))
    return read


def _named(name: str, read: _Read) -> Named | None:
    """With what it changes; none where that may be files that nobody sees named: by a wildcard, or with a whole folder."""
    every = tuple(path.place for path in read.paths)
    if name in ("mv", "rm"):
        unseen = _wild(every) or (name == "rm" and any(_many(path) for path in every))
        if unseen or name == "rm":
            return None if unseen else Named(every, every)
        *moved, target = every
        within = tuple(f"{target.rstrip('/')}/{posixpath.basename(path.rstrip('/'))}" for path in moved)
        return Named(every + within, every + within, places=(target, *within))
    if name == "restore":
        source, taken = bool({"--source", "-s"} & set(read.options)), every
    elif name == "checkout":
        source, taken = bool(read.before), tuple(path.place for path in read.after)
    elif name == "reset":
        taken = tuple(path.place for path in (*read.before[1:], *read.after))
        source = bool(read.before) and read.before[0].text not in ("HEAD", "@")
        if not source:
            return Named(every)
    else:
        return Named(every)
    if source and (_wild(taken) or any(_many(path) for path in taken)):
        return None
    return Named(every, taken, taken if source else ())


def _wild(paths: Sequence[str]) -> bool:
    return any(character in path for path in paths for character in "*?[")


def _many(path: str) -> bool:
    return path == "." or path.endswith(("/", "/."))


def _option(form: Form, text: str, following: list[Word]) -> str | None:
    """An option's name, if it may be used so; the value of a short one may be the next word."""
    value: str | None
    if text in form.flags or (form.numbers and re.fullmatch(r"-\d{1,6}", text)):
        return text
    if text.startswith("--"):
        name, equals, value = text.partition("=")
        pattern = dict(form.values).get(name)
        if pattern is not None and not equals and name in _SPLIT:
            value, equals = _next(name, following), "="
        return name if pattern is not None and equals and value is not None and re.fullmatch(pattern, value) else None
    for number, letter in enumerate(text[1:], 1):
        pattern = dict(form.short).get(f"-{letter}")
        if pattern is not None:
            value = text[number + 1 :]
            if not value and (pattern == TEXT or not re.fullmatch(pattern, "")):
                value = _next(f"-{letter}", following)
            return f"-{letter}" if value is not None and _value(pattern, value) else None
        if letter not in form.letters:
            return None
    return text if len(text) > 1 else None


_SPLIT = frozenset(
    ("--message", "--grep", "--author", "--since", "--until", "--after", "--before", "--max-count", "--source")
)
"""Long options whose value may be the next word."""


def _next(option: str, following: list[Word]) -> str | None:
    """The next word as an option's value. One that begins with a dash could be read as another option; not so behind a message's."""
    if not following or (following[0].text.startswith("-") and option not in ("-m", "--message")):
        return None
    return following.pop(0).text


def _value(pattern: str, value: str) -> bool:
    found = re.fullmatch(pattern, value)
    if found is None:
        return False
    path = found.groupdict().get("path")
    return path is None or inside(Word(path), "") is not None


def inside(word: Word, workspace: str) -> str | None:
    """A word as a path of the workspace, or as a revision; none where it may be anything else by its letters.

    A word with a wildcard counts up to it: what stands before cannot become an option, nor leave the folder.
    """
    text = word.text
    if workspace and (text == workspace or text.startswith(f"{workspace}/")):
        text = text[len(workspace) + 1 :] or "."
    if not text or text.startswith(("-", "/", "~", ":")) or "\n" in text or "\\" in text:
        return None
    for named in text.split(":"):
        parts = named.split("/")
        if named.startswith(("/", "~")) or any(part == ".." or is_git(part) for part in parts):
            return None
    return text


def is_git(part: str) -> bool:
    """Is it Git's own folder, by any spelling that a file system takes for it?"""
    seen = "".join(character for character in part if character.isascii() or character.isalnum()).casefold()
    return seen.rstrip(". ") in (".git", "git~1")


def _nothing(_read: _Read) -> bool:
    return True


_OWN = re.compile(r"(?:HEAD|@)(?:[~^]\d{0,3})*|HEAD@\{\d{1,3}\}")
"""What the own branch was before."""
_NEEDS = {
    "commit": lambda read: bool({"-m", "--message", "--no-edit", "--fixup"} & set(read.options)),
    "checkout": lambda read: bool(read.after) and len(read.before) <= 1,
    "rm": lambda read: bool(read.paths),
    "mv": lambda read: len(read.paths) > 1,
    "restore": lambda read: bool(read.paths),
    "reset": lambda read: (
        (not read.before or _OWN.fullmatch(read.before[0].text) is not None)
        and (len(read.paths) <= 1 or not {"--soft", "--mixed"} & set(read.options))
    ),
}
"""What a command must have to be what it looks like: else it waits for an editor, or means something else."""


def _up_to_date(given: Sequence[Word]) -> Named | None:
    names = [word for word in given if not word.text.startswith("-")]
    options = [word for word in given if word.text.startswith("-")]
    if any(word.text not in _MOVING.flags for word in options) or len(names) > 1:
        return None
    return Named() if all(_OTHER.fullmatch(word.text) and ".." not in word.text for word in names) else None


def _stash(given: Sequence[Word]) -> Named | None:
    """All worktrees of a repository share their stashes: they may be looked at."""
    words = [word.text for word in given]
    looks = words[:1] == ["list"] or words[:1] == ["show"]
    plain = all(re.fullmatch(r"-p|--stat|--patch|--oneline|--name-only|stash@\{\d+\}|\d+", word) for word in words[1:])
    return Named() if looks and plain else None
