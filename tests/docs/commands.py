"""The commands on documentation pages: extracted from blocks and sentences, and parsed as `ao` would, without running them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from agent_orchestrator.cli.app import cli
from agent_orchestrator.cli.common import DaemonName
from tests.docs.pages import blocks, page_path, prose

SHELL = ("sh", "bash", "console")
_PROGRAM = r"(?:ao|agent-orchestrator)"
_INLINE = re.compile(rf"`({_PROGRAM}(?: [^`\n]*)?)`")
_END = re.compile(r"^(?:\||\|\||&&|;|&|>|>>|<|2>|2>&1|\)|do|done)$")


@dataclass(frozen=True)
class ShownCommand:
    """A command on a page."""

    page: Path
    line: int
    words: tuple[str, ...]
    in_block: bool
    """Whether it is in a block, to be typed as it is; in a sentence arguments may be omitted."""

    def __str__(self) -> str:
        return f"{page_path(self.page)}:{self.line}: ao {shlex.join(self.words)}"


def shown_commands(page: Path) -> Iterator[ShownCommand]:
    """Yield every `ao …` command of a page."""
    for block in blocks(page):
        if block.language in SHELL:
            for number, line in _lines(block.text):
                for words in _commands(re.sub(r"(^|\s)# .*", "", line)):
                    yield ShownCommand(page, block.line + number, words, True)
    for match in _INLINE.finditer(prose(page)):
        for words in _commands(match[1]):
            yield ShownCommand(page, 0, words, False)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield a block's lines with their numbers; continued lines are joined."""
    began, line = 0, ""
    for number, part in enumerate(text.splitlines(), 1):
        began, line = (began if line else number), line + part
        if line.endswith("\\"):
            line = line[:-1]
        else:
            yield began, line
            line = ""


def _commands(line: str) -> Iterator[tuple[str, ...]]:
    """Yield the `ao` commands of a line, also those in `$(…)`."""
    for start in re.finditer(rf"(?:^|[$|;&(] ?|&& |then )(?:\w+=\S* )*{_PROGRAM}(?= |$)", line):
        rest = line[start.end() :]
        if line[: start.end()].rpartition("(")[2] in ("ao", "agent-orchestrator"):  # $(ao …)
            rest = rest.partition(")")[0]
        try:
            lexer = shlex.shlex(rest, posix=True, punctuation_chars=";|&<>()")
            lexer.whitespace_split = True
            words = list(lexer)
        except ValueError:  # an unfinished quotation: another match has all of it
            words = rest.split()
        ends = [at for at, word in enumerate(words) if _END.match(word)]
        yield tuple(words[: ends[0]] if ends else words)


def parse_error(words: tuple[str, ...], whole: bool) -> str:
    """Return the error with which `ao` would refuse a command, or "". `…` stands for any arguments, `[S]` is optional."""
    shown_words = [
        word.strip("[]") if not whole else word for word in words if word not in ("-h", "--help", "--version")
    ]
    refused = _refused(shown_words, whole)
    return (refused and "…" in words and _refused([word for word in shown_words if word != "…"], False)) or refused


def with_session(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words with each session's name replaced by `S`."""
    ctx = _parse(list(words))
    named = [
        value
        for param in ctx.command.params
        if isinstance(param.type, DaemonName) and param.type.kind in ("sessions", "any")
        for value in _as_list(ctx.params.get(param.name or ""))
    ]
    return tuple("S" if word in named else word for word in words)


def _as_list(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, (list, tuple)) else [] if value is None else [str(value)]


def _refused(words: list[str], whole: bool) -> str:
    try:
        _parse(words)
    except (click.MissingParameter, click.BadOptionUsage, click.exceptions.NoArgsIsHelpError) as error:
        return error.format_message() if whole else ""
    except click.BadParameter as error:  # in a sentence an issue's number may be `N`
        return error.format_message() if whole else ""
    except click.UsageError as error:
        return error.format_message()
    return ""


def _parse(words: list[str]) -> click.Context:
    """Return the context of the command that these words call."""
    ctx = cli.make_context("ao", list(words))
    command: click.Command = cli
    while isinstance(command, click.Group) and (args := _remaining_words(ctx)):
        _, subcommand, rest = command.resolve_command(ctx, args)
        assert subcommand is not None
        ctx, command = subcommand.make_context(subcommand.name, rest, parent=ctx), subcommand
    return ctx


def _remaining_words(ctx: click.Context) -> list[str]:
    """Return the words that a group leaves to its subcommand."""
    kept: list[str] = vars(ctx).get("_protected_args") or vars(ctx).get("protected_args") or []
    return [*kept, *ctx.args]
