"""Which Git commands stay in the workspace and on its own branch: each with the options that it may have, written out. Pure.

Git takes options by their beginnings too, so what is not in these lists, letter for letter, is not allowed. No option here names a
program, or a file to read from or write to; no word names a path outside, or steers how paths are matched.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent_orchestrator.flow.shell_words import Word

_NUMBER = r"\d{1,9}"
_TEXT = r"(?s:.*)"
_NAME = r"[a-z][a-z-]*"
_FORMAT = r"(?:format:|tformat:)?(?!.*%[-+ ]?G)(?s:.*)"
"""How a commit is shown; `%G…` would have its signature checked, by a program."""
_REVISION = r"(?!-)[\w./@{}^~+-]+"
_LINES = r"(?:\d+|/[^:/]+/),(?:[+-]?\d+|/[^:/]+/)"


@dataclass(frozen=True, slots=True)
class Form:
    """What a Git command may have: options by themselves, letters that may stand together behind one dash, options with a value
    (`--name=value`), short ones with a value (`-n 5`, `-n5`), and how many other words (paths, revisions).
    """

    flags: frozenset[str] = frozenset()
    letters: str = ""
    values: tuple[tuple[str, str], ...] = ()
    short: tuple[tuple[str, str], ...] = ()
    words: bool = True
    numbers: bool = False
    """`-5` is allowed: so many."""
    free: int = 0
    """So many first words are neither path nor revision: what is looked for."""


def _form(
    flags: str,
    letters: str = "",
    values: dict[str, str] | None = None,
    short: dict[str, str] | None = None,
    *,
    words: bool = True,
    numbers: bool = False,
    free: int = 0,
) -> Form:
    return Form(
        frozenset(flags.split()),
        letters,
        tuple((values or {}).items()),
        tuple((short or {}).items()),
        words,
        numbers,
        free,
    )


_DIFF = """--stat --shortstat --numstat --summary --compact-summary --dirstat --name-only --name-status --raw --patch --no-patch
    --patch-with-stat --binary --full-index --text --check --quiet --exit-code --minimal --patience --histogram --color --no-color
    --no-ext-diff --no-textconv --no-renames --find-renames --find-copies --no-prefix --relative --no-relative --function-context
    --ignore-all-space --ignore-space-change --ignore-space-at-eol --ignore-cr-at-eol --ignore-blank-lines --word-diff --color-words
    --pickaxe-all --pickaxe-regex --abbrev --no-abbrev --ignore-submodules"""
_DIFF_VALUES = {
    "--stat": r"\d+(?:,\d+){0,2}",
    "--unified": _NUMBER,
    "--diff-filter": r"[A-Za-z*]+",
    "--color": _NAME,
    "--word-diff": _NAME,
    "--abbrev": _NUMBER,
    "--find-renames": r"\d+%?",
    "--inter-hunk-context": _NUMBER,
    "--diff-algorithm": _NAME,
    "--ignore-submodules": _NAME,
}
_DIFF_SHORT = {"-U": _NUMBER, "-S": _TEXT, "-G": _TEXT, "-M": r"(?:\d+%?)?"}
_LOG = f"""{_DIFF} --oneline --graph --decorate --no-decorate --all --branches --tags --remotes --reverse --merges --no-merges
    --first-parent
    --follow --abbrev-commit --no-abbrev-commit --topo-order --date-order --left-right --cherry-pick --cherry-mark --cherry --boundary
    --no-walk --regexp-ignore-case --invert-grep --all-match --fixed-strings --extended-regexp --full-history --simplify-merges --not
    --parents --children --left-only --right-only --no-notes --relative-date"""
_LOG_VALUES = _DIFF_VALUES | {
    "--pretty": _FORMAT,
    "--format": _FORMAT,
    "--date": r"[a-z-]+(?::[\w%:/. -]*)?",
    "--decorate": _NAME,
    "--author": _TEXT,
    "--committer": _TEXT,
    "--grep": _TEXT,
    "--since": _TEXT,
    "--until": _TEXT,
    "--after": _TEXT,
    "--before": _TEXT,
    "--max-count": _NUMBER,
    "--skip": _NUMBER,
}
_LOG_SHORT = _DIFF_SHORT | {"-n": _NUMBER, "-L": rf"(?:{_LINES}|:[\w.]+):(?P<path>.+)"}

FORMS = {
    "add": _form(
        "--all --update --intent-to-add --verbose --dry-run --ignore-errors --no-all",
        "AuNvn",
        {"--chmod": r"[+-]x"},
    ),
    "blame": _form(
        "--show-email --show-name --show-number --porcelain --line-porcelain --root",
        "wMCselftnp",
        {"--date": _NAME, "--since": _TEXT, "--abbrev": _NUMBER},
        {"-L": rf"{_LINES}|{_NUMBER},?"},
    ),
    "branch": _form("--show-current --all --remotes --list --verbose --no-color", "arv", words=False),
    "cat-file": _form("", "pte"),
    "checkout": _form("--quiet --ours --theirs", "q"),
    "commit": _form(
        "--all --amend --no-edit --allow-empty --quiet --verbose --signoff --no-signoff --reset-author --no-gpg-sign --only --include",
        "aqvsoi",
        {"--message": _TEXT, "--fixup": _REVISION, "--squash": _REVISION},
        {"-m": _TEXT},
    ),
    "describe": _form("--tags --all --always --long --dirty --exact-match", "", {"--abbrev": _NUMBER}),
    "diff": _form(f"{_DIFF} --cached --staged --merge-base", "puswabzWR", _DIFF_VALUES, _DIFF_SHORT),
    "grep": _form(
        "--line-number --ignore-case --word-regexp --fixed-strings --extended-regexp --perl-regexp --basic-regexp --count --heading --break"
        " --name-only --files-with-matches --files-without-match --cached --invert-match --show-function --function-context --no-color"
        " --full-name --column --only-matching --quiet --all-match --and --or --not",
        "niwFEPGclLhHIvopWq",
        {"--max-depth": _NUMBER, "--color": _NAME, "--max-count": _NUMBER},
        {"-A": _NUMBER, "-B": _NUMBER, "-C": _NUMBER, "-m": _NUMBER, "-e": _TEXT},
        free=1,
    ),
    "log": _form(_LOG, "puswabziEFzW", _LOG_VALUES, _LOG_SHORT, numbers=True),
    "ls-files": _form(
        "--cached --deleted --modified --others --stage --unmerged --ignored --exclude-standard --full-name --directory --error-unmatch"
        " --deduplicate --killed --eol",
        "cdmosuiztk",
    ),
    "ls-tree": _form("--name-only --name-status --full-name --full-tree --long", "rtdlz", {"--abbrev": _NUMBER}),
    "merge-base": _form("--all --is-ancestor --fork-point --octopus --independent", "a"),
    "mv": _form("--verbose --dry-run --force", "vnfk"),
    "reset": _form("--quiet --soft --mixed", "q"),
    "restore": _form(
        "--staged --worktree --quiet --ours --theirs --no-overlay", "SWq", {"--source": _REVISION}, {"-s": _REVISION}
    ),
    "rev-list": _form(
        "--count --all --oneline --no-merges --merges --first-parent --left-right",
        "",
        {"--max-count": _NUMBER},
        {"-n": _NUMBER},
    ),
    "rev-parse": _form(
        "--show-toplevel --abbrev-ref --short --verify --quiet --git-dir --absolute-git-dir --git-common-dir --is-inside-work-tree"
        " --is-inside-git-dir --is-bare-repository --is-shallow-repository --show-prefix --show-cdup --symbolic-full-name --symbolic"
        " --show-object-format",
        "q",
        {"--short": _NUMBER, "--abbrev-ref": _NAME},
    ),
    "rm": _form("--cached --force --quiet --dry-run --ignore-unmatch", "rfqn"),
    "show": _form(_LOG, "puswabzEFW", _LOG_VALUES, _LOG_SHORT, numbers=True),
    "show-ref": _form("--heads --tags --head --verify --quiet --hash --dereference", "sdq"),
    "status": _form(
        "--short --branch --long --porcelain --verbose --untracked-files --ignored --show-stash --ahead-behind --no-ahead-behind"
        " --renames --no-renames",
        "sbvuz",
        {"--porcelain": r"v?[12]", "--untracked-files": _NAME, "--ignored": _NAME, "--ignore-submodules": _NAME},
        {"-u": r"(?:no|normal|all)?"},
    ),
    "version": _form("--build-options", words=False),
}
"""Each by its name, with everything that it may have."""

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


def own_branch(words: Sequence[Word], workspace: str = "") -> tuple[str, ...] | None:
    """The paths that a Git command names, where it changes nothing but the session's own branch and files; none: it may do more."""
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
    read = form and _read(form, given, workspace)
    if not read or not _NEEDS.get(name, _nothing)(read):
        return None
    return read.paths


@dataclass(frozen=True, slots=True)
class _Read:
    """A command's words, told apart."""

    options: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    """Words before and behind `--`."""

    @property
    def paths(self) -> tuple[str, ...]:
        return (*self.before, *self.after)


def _read(form: Form, given: Sequence[Word], workspace: str) -> _Read | None:
    options: list[str] = []
    before: list[str] = []
    after: list[str] | None = None
    words = list(given)
    free = 0 if any(word.text.startswith("-e") for word in given) else form.free
    while words:
        word = words.pop(0)
        if after is None and word.text == "--":
            after = []
        elif after is None and word.text.startswith("-"):
            if word.several:
                return None
            taken = _option(form, word.text, words)
            if taken is None:
                return None
            options.append(taken)
        elif after is None and free:
            free -= 1
        else:
            path = inside(word, workspace)
            if path is None or not form.words:
                return None
            (before if after is None else after).append(path)
    return _Read(tuple(options), tuple(before), tuple(after or ()))


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
            if not value and (pattern == _TEXT or not re.fullmatch(pattern, "")):
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


_NEEDS = {
    "commit": lambda read: bool({"-m", "--message", "--no-edit", "--fixup"} & set(read.options)),
    "checkout": lambda read: bool(read.after) and len(read.before) <= 1,
    "rm": lambda read: bool(read.paths),
    "mv": lambda read: len(read.paths) > 1,
    "restore": lambda read: bool(read.paths),
    "reset": lambda read: len(read.before) <= 1 or not {"--soft", "--mixed"} & set(read.options),
}
"""What a command must have to be what it looks like: else it waits for an editor, or means something else."""


def _up_to_date(given: Sequence[Word]) -> tuple[str, ...] | None:
    names = [word for word in given if not word.text.startswith("-")]
    options = [word for word in given if word.text.startswith("-")]
    if any(word.text not in _MOVING.flags for word in options) or len(names) > 1:
        return None
    return () if all(_OTHER.fullmatch(word.text) and ".." not in word.text for word in names) else None


def _stash(given: Sequence[Word]) -> tuple[str, ...] | None:
    """All worktrees of a repository share their stashes: they may be looked at."""
    words = [word.text for word in given]
    looks = words[:1] == ["list"] or words[:1] == ["show"]
    plain = all(re.fullmatch(r"-p|--stat|--patch|--oneline|--name-only|stash@\{\d+\}|\d+", word) for word in words[1:])
    return () if looks and plain else None
