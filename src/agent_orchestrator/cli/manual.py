"""Write the man page ao(1) from the commands themselves: `python -m agent_orchestrator.cli.manual FILE`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import click

from agent_orchestrator import __version__
from agent_orchestrator.cli.app import COMMANDS, EVERYDAY, MORE_COMMANDS, cli

_HEADER = r"""
.SH NAME
ao \- run a fleet of coding agents, each in its own Git worktree
.SH SYNOPSIS
.B ao
[\fIcommand\fR] [\fIarguments\fR]
.br
.B agent\-orchestrator
[\fIcommand\fR] [\fIarguments\fR]
.SH DESCRIPTION
Each task gets a session: a coding agent in a Git worktree and on a branch of its own, in a terminal that can be attached to.
A daemon, which is started when it is needed, watches the agents, the checks and the reviews, and reacts.
.PP
.B ao
alone is
.BR "ao status" .
Commands concern the repository they are run in;
.BI \-p " P"
means another project,
.B \-A
all of them. A session is named by its id, its name, or a unique beginning of one of them.
"""

_FOOTER = r"""
.SH EXIT STATUS
.TS
l l.
0	done
1	failed
2	wrong usage
3	not found
4	the daemon cannot be reached
.TE
.SH ENVIRONMENT
.TP
.B AO_HOME
Where the daemon keeps everything;
.I ~/.agent\-orchestrator
by default.
.TP
.B AO_CONFIG
The configuration to use instead of the one that is found.
.TP
.B AO_SHELL
The shell whose login environment agents get.
.TP
.B AO_DEBUG
Show where an unexpected error came from.
.TP
.B NO_COLOR
No colours.
.SH FILES
.TP
.I agent\-orchestrator.yaml
The configuration of a repository, found upwards from the working directory.
.B ao config\-help
explains every key.
.TP
.I ~/.agent\-orchestrator/config.yaml
The user's own, for all projects.
.TP
.I ~/.agent\-orchestrator/daemon.log
What the daemon has to say.
.SH SEE ALSO
.BR git\-worktree (1),
.BR tmux (1)
"""


def man_page() -> str:
    """Return the whole page."""
    root = cli.make_context("ao", ["status"], resilient_parsing=True)
    parts = [f'\'\\" t\n.TH AO 1 "" "Agent Orchestrator {__version__}" "User Commands"', _HEADER.strip()]
    for title, entries in (("EVERYDAY COMMANDS", EVERYDAY), ("MORE_COMMANDS COMMANDS", MORE_COMMANDS)):
        parts.append(f".SH {title}")
        for name, entry in entries.items():
            command = cli.get_command(root, name)
            if command is not None and not entry.alias_of:
                parts += _sections(command, click.Context(command, info_name=name, parent=root))
    return "\n".join([*parts, _FOOTER.strip()]) + "\n"


def _sections(command: click.Command, ctx: click.Context) -> Iterator[str]:
    pieces = [piece for piece in command.collect_usage_pieces(ctx) if piece != "[OPTIONS]"]
    arguments = " ".join(pieces)
    yield f".SS {_escape(f'{ctx.command_path} {arguments}'.rstrip())}"
    aliases = [name for name, entry in COMMANDS.items() if entry.alias_of == ctx.info_name]
    if aliases and ctx.command_path.count(" ") == 1:
        yield f"Also \\fBao {', ao '.join(map(_escape, aliases))}\\fR.\n.PP"
    yield "\n.PP\n".join(_format_paragraph(paragraph) for paragraph in (command.help or "").split("\n\n"))
    for option in command.params:
        if isinstance(option, click.Option) and (record := option.get_help_record(ctx)):
            yield f".TP\n\\fB{_escape(record[0])}\\fR\n{_format_paragraph(record[1])}"
    if isinstance(command, click.Group):
        for name, subcommand in command.commands.items():
            yield from _sections(subcommand, click.Context(subcommand, info_name=name, parent=ctx))


def _format_paragraph(paragraph: str) -> str:
    """Return a paragraph in roff, with text in backticks in bold."""
    plain = _escape(" ".join(paragraph.split()))
    marked = re.sub(r"`([^`]+)`", r"\\fB\1\\fR", plain)
    return rf"\&{marked}" if marked[:1] in (".", "'") else marked


def _escape(text: str) -> str:
    """Escape characters that roff treats specially."""
    letters = {"\\": r"\e", "-": r"\-", "…": "...", "·": "|"}
    return "".join(letters.get(letter, letter) for letter in text)


if __name__ == "__main__":
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write(man_page())
