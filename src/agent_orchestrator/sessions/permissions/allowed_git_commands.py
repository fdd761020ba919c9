"""The Git commands that change only the workspace and its own branch, each with all options that it may have. Pure.

Git accepts abbreviated options, so only the exact spellings in these lists are allowed. No option here names a program, or a file to read
from or write to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER = r"\d{1,9}"
ANY_TEXT = r"(?s:.*)"
"""A pattern that matches any text."""
_NAME = r"[a-z][a-z-]*"
_FORMAT = r"(?:format:|tformat:)?(?!(?s:.*)%[-+ ]?G)(?s:.*)"
"""How a commit is shown; `%G…` is excluded, because it runs a program to check the signature."""
_REVISION = r"(?!-)[\w./@{}^~+-]+"
_LINES = r"(?:\d+|/[^:/]+/),(?:[+-]?\d+|/[^:/]+/)"


@dataclass(frozen=True, slots=True)
class CommandForm:
    """What a Git command may have.

    `flags` are whole options, `letters` may be combined after one dash, `values` are options with a value (`--name=value`), `short` are
    short options with a value (`-n 5`, `-n5`), and `words` says whether other words (paths, revisions) are allowed.
    """

    flags: frozenset[str] = frozenset()
    letters: str = ""
    values: tuple[tuple[str, str], ...] = ()
    short: tuple[tuple[str, str], ...] = ()
    words: bool = True
    numbers: bool = False
    """Whether a number as an option (`-5`) is allowed."""
    free: int = 0
    """The number of first words that are neither path nor revision, such as a search pattern."""


def _form(
    flags: str,
    letters: str = "",
    values: dict[str, str] | None = None,
    short: dict[str, str] | None = None,
    *,
    words: bool = True,
    numbers: bool = False,
    free: int = 0,
) -> CommandForm:
    """Return the form of a command, from options written as one string."""
    return CommandForm(
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
_DIFF_SHORT = {"-U": _NUMBER, "-S": ANY_TEXT, "-G": ANY_TEXT, "-M": r"(?:\d+%?)?"}
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
    "--author": ANY_TEXT,
    "--committer": ANY_TEXT,
    "--grep": ANY_TEXT,
    "--since": ANY_TEXT,
    "--until": ANY_TEXT,
    "--after": ANY_TEXT,
    "--before": ANY_TEXT,
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
        {"--date": _NAME, "--since": ANY_TEXT, "--abbrev": _NUMBER},
        {"-L": rf"{_LINES}|{_NUMBER},?"},
    ),
    "branch": _form("--show-current --all --remotes --list --verbose --no-color", "arv", words=False),
    "cat-file": _form("", "pte"),
    "checkout": _form("--quiet --ours --theirs", "q"),
    "commit": _form(
        "--all --amend --no-edit --allow-empty --quiet --verbose --signoff --no-signoff --reset-author --no-gpg-sign --only --include",
        "aqvsoi",
        {"--message": ANY_TEXT, "--fixup": _REVISION, "--squash": _REVISION},
        {"-m": ANY_TEXT},
    ),
    "describe": _form("--tags --all --always --long --dirty --exact-match", "", {"--abbrev": _NUMBER}),
    "diff": _form(f"{_DIFF} --cached --staged --merge-base", "puswabzWR", _DIFF_VALUES, _DIFF_SHORT),
    "grep": _form(
        "--line-number --ignore-case --word-regexp --fixed-strings --extended-regexp --perl-regexp --basic-regexp --count --heading --break"
        " --name-only --files-with-matches --files-without-match --cached --invert-match --show-function --function-context --no-color"
        " --full-name --column --only-matching --quiet --all-match --and --or --not",
        "niwFEPGclLhHIvopWq",
        {"--max-depth": _NUMBER, "--color": _NAME, "--max-count": _NUMBER},
        {"-A": _NUMBER, "-B": _NUMBER, "-C": _NUMBER, "-m": _NUMBER, "-e": ANY_TEXT},
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
"""The form of each allowed Git command, by its name."""

UPDATE_OPTIONS = frozenset(
    ("--continue", "--abort", "--skip", "--no-edit", "--ff-only", "--no-ff", "--ff", "--quiet", "--no-stat")
)
"""The options that `git rebase` and `git merge` may have."""
UPDATE_REVISION = re.compile(r"[A-Za-z0-9][\w./-]*(?:[~^]\d{0,4})*")
"""A revision to bring the own branch up to date with; only one, because `git rebase A B` would move B."""

STASH_SUBCOMMANDS = frozenset(("list", "show"))
"""The subcommands that `git stash` may have: they only show stashes, which all worktrees of a repository share."""
STASH_ARGUMENTS = re.compile(r"-p|--stat|--patch|--oneline|--name-only|stash@\{\d+\}|\d+")
"""What may follow them."""

NON_INTERACTIVE_VARIABLES = frozenset(
    (
        "GIT_EDITOR=true",
        "GIT_EDITOR=:",
        "GIT_SEQUENCE_EDITOR=true",
        "GIT_SEQUENCE_EDITOR=:",
        "GIT_PAGER=cat",
        "PAGER=cat",
    )
)
"""Variables before a command that only keep it from waiting for a person's input."""
