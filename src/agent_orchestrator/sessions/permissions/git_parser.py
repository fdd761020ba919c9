"""Parses Git commands that change only the workspace and its own branch: which paths they name, and which they change. Pure.

A command with a path outside the workspace, or with an option that changes how paths are matched, is rejected.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agent_orchestrator.sessions.permissions.allowed_git_commands import (
    ANY_TEXT,
    FORMS,
    NON_INTERACTIVE_VARIABLES,
    STASH_ARGUMENTS,
    STASH_SUBCOMMANDS,
    UPDATE_OPTIONS,
    UPDATE_REVISION,
    CommandForm,
)
from agent_orchestrator.sessions.permissions.shell_words import Word


@dataclass(frozen=True, slots=True)
class GitPaths:
    """The paths that a command names, relative to the workspace.

    `paths` are all of them (including revisions), `changed` those whose files it changes, and `files` those that it takes out of a
    revision, which must be single files.
    """

    paths: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    folder: str = ""
    """Where in the workspace the command is run."""
    moved_folders: tuple[str, ...] = ()
    """What whole folders, with everything in them, may be moved to."""

    def __add__(self, other: GitPaths) -> GitPaths:
        return GitPaths(
            self.paths + other.paths,
            self.changed + other.changed,
            self.files + other.files,
            self.folder,
            self.moved_folders + other.moved_folders,
        )


def parse_git_command(words: Sequence[Word], workspace: str = "", folder: str = "") -> GitPaths | None:
    """Return what a Git command names if it changes only the session's own branch and files, or None.

    `folder` is where in the workspace it is run.
    """
    remaining = list(words)
    while remaining and remaining[0].text in NON_INTERACTIVE_VARIABLES and not remaining[0].quoted:
        remaining.pop(0)
    if not remaining or remaining[0] != Word("git"):
        return None
    remaining.pop(0)
    while remaining and remaining[0] in (Word("--no-pager"), Word("-P")):
        remaining.pop(0)
    if not remaining or remaining[0].quoted:
        return None
    name, arguments = remaining[0].text, remaining[1:]
    if name in ("rebase", "merge"):
        return _parse_update(arguments)
    if name == "stash":
        return _parse_stash(arguments)
    form = FORMS.get(name)
    parsed = form and _parse(form, arguments, workspace, folder)
    if not parsed or not _REQUIREMENTS.get(name, _needs_nothing)(parsed):
        return None
    return _paths_of(name, parsed)


class _Path(NamedTuple):
    """A word that is not an option: as it is written, and as a path relative to the workspace."""

    text: str
    place: str


@dataclass(frozen=True, slots=True)
class _ParsedCommand:
    """The parsed words of a command."""

    options: tuple[str, ...] = ()
    before: list[_Path] = field(default_factory=list)
    after: list[_Path] = field(default_factory=list)
    """Words after `--`; `before` has those in front of it."""

    @property
    def paths(self) -> tuple[_Path, ...]:
        """All words that are not options."""
        return (*self.before, *self.after)


def _parse(form: CommandForm, arguments: Sequence[Word], workspace: str, folder: str) -> _ParsedCommand | None:
    """Parse a command's words by its form; return None if an option or a path is not allowed."""
    options: list[str] = []
    words_before: list[Word] = []
    words_after: list[Word] | None = None
    words = list(arguments)
    while words:
        word = words.pop(0)
        if words_after is not None:
            words_after.append(word)
        elif word.text == "--":
            words_after = []
        elif not word.text.startswith("-"):
            words_before.append(word)
        else:
            option = None if word.is_pattern else _parse_option(form, word.text, words)
            if option is None:
                return None
            options.append(option)
    if form.free and "-e" not in options:
        words_before = words_before[form.free :]
    parsed = _ParsedCommand(tuple(options))
    for plain_words, paths in ((words_before, parsed.before), (words_after or [], parsed.after)):
        for word in plain_words:
            path = workspace_path(word, workspace)
            if path is None or not form.words:
                return None
            is_below_folder = folder and not word.text.startswith("/")
            paths.append(_Path(path, f"{folder}/{path}" if is_below_folder else path))
    return parsed


def _paths_of(name: str, parsed: _ParsedCommand) -> GitPaths | None:
    """Return the command's paths and those it changes, or None if it may change files that are not named.

    That is the case for wildcards and for whole folders.
    """
    all_paths = tuple(path.place for path in parsed.paths)
    if name in ("mv", "rm"):
        is_unclear = _has_wildcard(all_paths) or (name == "rm" and any(_is_folder(path) for path in all_paths))
        if is_unclear or name == "rm":
            return None if is_unclear else GitPaths(all_paths, all_paths)
        *moved_paths, target = all_paths
        targets = tuple(f"{target.rstrip('/')}/{posixpath.basename(path.rstrip('/'))}" for path in moved_paths)
        return GitPaths(all_paths + targets, all_paths + targets, moved_folders=(target, *targets))
    if name == "restore":
        has_source, restored = bool({"--source", "-s"} & set(parsed.options)), all_paths
    elif name == "checkout":
        has_source, restored = bool(parsed.before), tuple(path.place for path in parsed.after)
    elif name == "reset":
        restored = tuple(path.place for path in (*parsed.before[1:], *parsed.after))
        has_source = bool(parsed.before) and parsed.before[0].text not in ("HEAD", "@")
        if not has_source:
            return GitPaths(all_paths)
    else:
        return GitPaths(all_paths)
    if has_source and (_has_wildcard(restored) or any(_is_folder(path) for path in restored)):
        return None
    return GitPaths(all_paths, restored, restored if has_source else ())


def _has_wildcard(paths: Sequence[str]) -> bool:
    """Return whether a path has a wildcard."""
    return any(character in path for path in paths for character in "*?[")


def _is_folder(path: str) -> bool:
    """Return whether a path is written as a folder."""
    return path == "." or path.endswith(("/", "/."))


def _parse_option(form: CommandForm, text: str, following_words: list[Word]) -> str | None:
    """Return an option's name, or None if it is not allowed like this; the value of a short one may be the next word."""
    value: str | None
    if text in form.flags or (form.numbers and re.fullmatch(r"-\d{1,6}", text)):
        return text
    if text.startswith("--"):
        name, equals, value = text.partition("=")
        pattern = dict(form.values).get(name)
        if pattern is not None and not equals and name in _SPLIT_OPTIONS:
            value, equals = _take_value(name, following_words), "="
        return name if pattern is not None and equals and value is not None and re.fullmatch(pattern, value) else None
    for number, letter in enumerate(text[1:], 1):
        pattern = dict(form.short).get(f"-{letter}")
        if pattern is not None:
            value = text[number + 1 :]
            if not value and (pattern == ANY_TEXT or not re.fullmatch(pattern, "")):
                value = _take_value(f"-{letter}", following_words)
            return f"-{letter}" if value is not None and _is_valid_value(pattern, value) else None
        if letter not in form.letters:
            return None
    return text if len(text) > 1 else None


_SPLIT_OPTIONS = frozenset(
    ("--message", "--grep", "--author", "--since", "--until", "--after", "--before", "--max-count", "--source")
)
"""Long options whose value may be the next word."""


def _take_value(option: str, following_words: list[Word]) -> str | None:
    """Remove and return the next word as an option's value, or return None.

    A word that begins with a dash could be read as another option, except after a message option.
    """
    if not following_words or (following_words[0].text.startswith("-") and option not in ("-m", "--message")):
        return None
    return following_words.pop(0).text


def _is_valid_value(pattern: str, value: str) -> bool:
    """Return whether a value matches its pattern, and its path lies in the workspace."""
    match = re.fullmatch(pattern, value)
    if match is None:
        return False
    path = match.groupdict().get("path")
    return path is None or workspace_path(Word(path), "") is not None


def workspace_path(word: Word, workspace: str) -> str | None:
    """Return a word's text relative to the workspace if it can only be a path in it or a revision, otherwise None.

    None for the beginning of an option, an absolute or home path or pathspec magic, a `..` or `.git` part, a backslash or a
    line break. A wildcard stays in the text; an unquoted one never begins a word, so no expansion becomes an option.
    """
    text = word.text
    if workspace and (text == workspace or text.startswith(f"{workspace}/")):
        text = text[len(workspace) + 1 :] or "."
    if not text or text.startswith(("-", "/", "~", ":")) or "\n" in text or "\\" in text:
        return None
    for path in text.split(":"):
        parts = path.split("/")
        if path.startswith(("/", "~")) or any(part == ".." or is_git_folder(part) for part in parts):
            return None
    return text


def is_git_folder(part: str) -> bool:
    """Return whether the part is Git's own folder, in any spelling that a file system accepts for it."""
    normalized = "".join(character for character in part if character.isascii() or character.isalnum()).casefold()
    return normalized.rstrip(". ") in (".git", "git~1")


def _needs_nothing(_command: _ParsedCommand) -> bool:
    """Return True, for commands without further needs."""
    return True


_OWN_HISTORY = re.compile(r"(?:HEAD|@)(?:[~^]\d{0,3})*|HEAD@\{\d{1,3}\}")
"""An earlier state of the own branch."""
_REQUIREMENTS = {
    "commit": lambda command: bool({"-m", "--message", "--no-edit", "--fixup"} & set(command.options)),
    "checkout": lambda command: bool(command.after) and len(command.before) <= 1,
    "rm": lambda command: bool(command.paths),
    "mv": lambda command: len(command.paths) > 1,
    "restore": lambda command: bool(command.paths),
    "reset": lambda command: (
        (not command.before or _OWN_HISTORY.fullmatch(command.before[0].text) is not None)
        and (len(command.paths) <= 1 or not {"--soft", "--mixed"} & set(command.options))
    ),
}
"""What a command must have to mean what it seems to: otherwise it opens an editor, or means something else."""


def _parse_update(arguments: Sequence[Word]) -> GitPaths | None:
    """Return the paths of a rebase or merge (none) if it brings the own branch up to date, or None."""
    names = [word for word in arguments if not word.text.startswith("-")]
    options = [word for word in arguments if word.text.startswith("-")]
    if any(word.text not in UPDATE_OPTIONS for word in options) or len(names) > 1:
        return None
    return GitPaths() if all(UPDATE_REVISION.fullmatch(word.text) and ".." not in word.text for word in names) else None


def _parse_stash(arguments: Sequence[Word]) -> GitPaths | None:
    """Return the paths of a stash command (none) if it only shows stashes, which all worktrees of a repository share, or None."""
    words = [word.text for word in arguments]
    if not words or words[0] not in STASH_SUBCOMMANDS:
        return None
    return GitPaths() if all(STASH_ARGUMENTS.fullmatch(word) for word in words[1:]) else None
