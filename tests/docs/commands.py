"""The commands that pages show: taken out of blocks and sentences, and read as `ao` itself would read them, without doing them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from agent_orchestrator.cli.app import cli
from agent_orchestrator.cli.common import DaemonName
from tests.docs.pages import blocks, name, prose

SHELL = ("sh", "bash", "console")
_PROGRAM = r"(?:ao|agent-orchestrator)"
_INLINE = re.compile(rf"`({_PROGRAM}(?: [^`\n]*)?)`")
_END = re.compile(r"^(?:\||\|\||&&|;|&|>|>>|<|2>|2>&1|\)|do|done)$")


@dataclass(frozen=True)
class Shown:
    """A command on a page."""

    page: Path
    line: int
    words: tuple[str, ...]
    whole: bool
    """It stands in a block, to be typed as it is; in a sentence arguments may be left out."""

    def __str__(self) -> str:
        return f"{name(self.page)}:{self.line}: ao {shlex.join(self.words)}"


def shown(page: Path) -> Iterator[Shown]:
    """Every `ao …` of a page."""
    for block in blocks(page):
        if block.language in SHELL:
            for number, line in _lines(block.text):
                for words in _commands(re.sub(r"(^|\s)# .*", "", line)):
                    yield Shown(page, block.line + number, words, True)
    for found in _INLINE.finditer(prose(page)):
        for words in _commands(found[1]):
            yield Shown(page, 0, words, False)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """A block's lines with their numbers; one that goes on is one."""
    began, line = 0, ""
    for number, part in enumerate(text.splitlines(), 1):
        began, line = (began if line else number), line + part
        if line.endswith("\\"):
            line = line[:-1]
        else:
            yield began, line
            line = ""


def _commands(line: str) -> Iterator[tuple[str, ...]]:
    """What of a line is ours: several commands may stand there, alone or in `$(…)`."""
    for start in re.finditer(rf"(?:^|[$|;&(] ?|&& |then )(?:\w+=\S* )*{_PROGRAM}(?= |$)", line):
        rest = line[start.end() :]
        if line[: start.end()].rpartition("(")[2] in ("ao", "agent-orchestrator"):  # $(ao …)
            rest = rest.partition(")")[0]
        try:
            lexer = shlex.shlex(rest, posix=True, punctuation_chars=";|&<>()")
            lexer.whitespace_split = True
            words = list(lexer)
        except ValueError:  # half a quoted text: the whole is in another match
            words = rest.split()
        ends = [at for at, word in enumerate(words) if _END.match(word)]
        yield tuple(words[: ends[0]] if ends else words)


def wrong(words: tuple[str, ...], whole: bool) -> str:
    """Why `ao` would refuse this; empty: it would not. `…` stands for whatever may stand there, `[S]` for what may."""
    known = [word.strip("[]") if not whole else word for word in words if word not in ("-h", "--help", "--version")]
    refused = _refused(known, whole)
    return (refused and "…" in words and _refused([word for word in known if word != "…"], False)) or refused


def with_session(words: tuple[str, ...]) -> tuple[str, ...]:
    """The same with each session called `S`, whatever the page calls it."""
    ctx = _parsed(list(words))
    named = [
        value
        for param in ctx.command.params
        if isinstance(param.type, DaemonName) and param.type.kind in ("sessions", "any")
        for value in _several(ctx.params.get(param.name or ""))
    ]
    return tuple("S" if word in named else word for word in words)


def _several(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, (list, tuple)) else [] if value is None else [str(value)]


def _refused(words: list[str], whole: bool) -> str:
    try:
        _parsed(words)
    except (click.MissingParameter, click.BadOptionUsage, click.exceptions.NoArgsIsHelpError) as error:
        return error.format_message() if whole else ""
    except click.BadParameter as error:  # an issue's number, for one, is `N` in a sentence
        return error.format_message() if whole else ""
    except click.UsageError as error:
        return error.format_message()
    return ""


def _parsed(words: list[str]) -> click.Context:
    """The context of the command that these words call."""
    ctx = cli.make_context("ao", list(words))
    command: click.Command = cli
    while isinstance(command, click.Group) and (args := _left(ctx)):
        _, found, rest = command.resolve_command(ctx, args)
        assert found is not None
        ctx, command = found.make_context(found.name, rest, parent=ctx), found
    return ctx


def _left(ctx: click.Context) -> list[str]:
    """What a group has left for the command below it."""
    kept: list[str] = vars(ctx).get("_protected_args") or vars(ctx).get("protected_args") or []
    return [*kept, *ctx.args]
