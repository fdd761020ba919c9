"""The `ao` program: the table of commands, global options and the printing of errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from agent_orchestrator import __version__
from agent_orchestrator.errors import AoError


class CommandEntry(NamedTuple):
    """A command and the module that it is imported from."""

    target: str
    """`module:attribute` below this package."""
    summary: str
    alias_of: str = ""


EVERYDAY = {
    "start": CommandEntry(
        "daemon.start:start", "Start the daemon, register the repository here and open the dashboard."
    ),
    "new": CommandEntry("sessions.new:new", "Start a session for each task."),
    "spawn": CommandEntry("sessions.new:new", "Same as new.", "new"),
    "status": CommandEntry("sessions.status:status", "What runs, how far it is, and what needs you."),
    "list": CommandEntry("sessions.status:status", "Same as status.", "status"),
    "ls": CommandEntry("sessions.status:status", "Same as status.", "status"),
    "answer": CommandEntry("sessions.answer:answer", "Answer the questions and permission requests that wait for you."),
    "send": CommandEntry("sessions.control:send", "Send a message to a session's agent."),
    "prompt": CommandEntry("sessions.control:send", "Same as send.", "send"),
    "attach": CommandEntry("sessions.workspace:attach", "Show a session's real terminal."),
    "diff": CommandEntry("sessions.history:diff", "Show a session's change."),
    "review": CommandEntry("changes.review:review", "See and judge a session's change."),
    "merge": CommandEntry("changes.review:merge", "Let sessions' changes land, through the merge queue."),
    "stop": CommandEntry("sessions.control:stop", "Stop sessions; everything unsaved is saved first."),
    "restore": CommandEntry("sessions.control:restore", "Bring a stopped, crashed or interrupted session back."),
    "resume": CommandEntry("sessions.control:restore", "Same as restore.", "restore"),
    "doctor": CommandEntry("daemon.doctor:doctor", "Check every prerequisite, each with its remedy."),
}
MORE_COMMANDS = {
    "create": CommandEntry("sessions.new:create", "Make named sessions whose agent starts at its first message."),
    "shutdown": CommandEntry("daemon.start:shutdown", "Stop the daemon; sessions run on."),
    "dashboard": CommandEntry("daemon.start:dashboard", "Open the dashboard in the browser, signed in."),
    "init": CommandEntry("setup.projects:init", "Detect, prove and write the configuration for the repository here."),
    "trust": CommandEntry("setup.projects:trust", "Allow a repository's configuration to run its commands."),
    "projects": CommandEntry("setup.projects:projects", "List the projects."),
    "add-project": CommandEntry("setup.projects:add_project", "Register a repository."),
    "remove-project": CommandEntry("setup.projects:remove_project", "Forget a project; its files stay."),
    "issues": CommandEntry("changes.issues:issues", "List the tracker's issues."),
    "issue": CommandEntry("changes.issues:issue", "Open, show and change issues of the tracker."),
    "orchestrator": CommandEntry(
        "sessions.orchestrator:orchestrator", "Give a goal to the project's coordinating agent, or see how it stands."
    ),
    "fix": CommandEntry(
        "changes.fix:fix", "Have failing tests and lint errors fixed: one agent per cause, verified, merged."
    ),
    "backlog": CommandEntry(
        "changes.issues:backlog", "Show what would be taken up next, by which profile, and why not yet."
    ),
    "plan": CommandEntry(
        "changes.plan:plan", "Make tasks of a goal, or of the open issues; show, change and apply plans."
    ),
    "checks": CommandEntry("changes.review:checks", "Show a session's checks, and why they fail."),
    "queue": CommandEntry("changes.review:queue", "Show the merge queue: what is to land, in order."),
    "conflicts": CommandEntry("changes.conflicts:conflicts", "Show which sessions will collide, and on what."),
    "reactions": CommandEntry("setup.reactions:reactions", "Show the reaction rules in force, and what one would do."),
    "notify": CommandEntry("setup.notify:notify", "Try the notifiers, by which you are told."),
    "undo": CommandEntry("changes.review:undo", "Take a landing back by a new change."),
    "plugins": CommandEntry(
        "setup.plugins:plugins",
        "List the plugins: where each comes from, what it declares that it needs, and whether it is in force.",
    ),
    "agents": CommandEntry("setup.projects:agents", "List the agents and where they were found."),
    "permissions": CommandEntry("sessions.answer:permissions", "Show, or take back, what you allowed agents for good."),
    "top": CommandEntry("top:top", "Show the board on the whole terminal, and steer sessions by keys."),
    "usage": CommandEntry("sessions.usage:usage", "Show the tokens and dollars that agents used."),
    "logs": CommandEntry("sessions.history:logs", "Show what a session's agent said and did, or the daemon's own log."),
    "events": CommandEntry("sessions.history:events", "Show the event log, follow it, or replay one."),
    "audit": CommandEntry(
        "daemon.audit:audit", "Show who did what, when and why; export it; see that nobody changed it."
    ),
    "why": CommandEntry("sessions.history:why", "Explain a session's status and last reactions."),
    "sh": CommandEntry("sessions.workspace:sh", "Run a shell or a command in a session's workspace."),
    "path": CommandEntry("sessions.workspace:path", "Print where a session's workspace is."),
    "open": CommandEntry("sessions.open:open_session", "Open a session in a terminal, an editor or the browser."),
    "prune": CommandEntry("daemon.doctor:prune", "Remove what is provably safe to remove."),
    "config": CommandEntry("setup.config:config", "Read, change and check the configuration."),
    "config-help": CommandEntry("setup.config:config_help", "Explain every key of the configuration."),
    "import": CommandEntry(
        "setup.import_config:import_",
        "Take over another orchestrator's configuration, and say what became of each key.",
    ),
    "nodes": CommandEntry("daemon.nodes:nodes", "List the machines of the cluster."),
    "drain": CommandEntry("daemon.nodes:drain", "Move all sessions away from a machine of the cluster."),
    "secret": CommandEntry(
        "setup.secrets:secret", "Keep secrets in the system's keyring: `${keyring:NAME}` in the configuration."
    ),
    "token": CommandEntry(
        "setup.tokens:token", "Make, list and revoke tokens; list and end the browsers that are signed in."
    ),
    "skill": CommandEntry("setup.skill:skill", "Teach coding agents to use `ao`."),
    "mcp": CommandEntry(
        "daemon.mcp:mcp", "Serve tools and resources to an MCP client, over standard input and output."
    ),
    "api": CommandEntry("api:api", "Send one request to the daemon's HTTP API."),
    "completion": CommandEntry("setup.completion:completion", "Print the completion script for a shell."),
}
COMMANDS = EVERYDAY | MORE_COMMANDS

_NO_ARGUMENTS_ERRORS: tuple[type[Exception], ...] = tuple(
    filter(None, [getattr(click.exceptions, "NoArgsIsHelpError", None)])
)
"""The error of a group without a command, which is answered with its help. Click 8.1 handles that without an error."""
_MOVED_FLAGS = ("-A", "--all-projects", "--json")


class LazyGroup(click.Group):
    """A group that imports a command's module only when the command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        from importlib import import_module

        module, _, attribute = entry.target.partition(":")
        command: click.Command = getattr(import_module(f"agent_orchestrator.cli.{module}"), attribute)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _options_after_command(args))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS:
            raise click.UsageError(f"there is no command {name!r}{_did_you_mean(name, COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for title, entries in (("Everyday", EVERYDAY), ("More", MORE_COMMANDS)):
            with formatter.section(title):
                formatter.write_dl(
                    [(_with_aliases(name), entry.summary) for name, entry in entries.items() if not entry.alias_of]
                )


def _options_after_command(args: list[str]) -> list[str]:
    """Move options before the command behind it: `ao -p X status` becomes `ao status -p X`; without a command it is `status`."""
    moved: list[str] = []
    remaining = list(args)
    while remaining:
        if remaining[0] in ("-p", "--project") and len(remaining) > 1:
            moved += [remaining.pop(0), remaining.pop(0)]
        elif (
            remaining[0] in _MOVED_FLAGS
            or remaining[0].startswith("--project=")
            or (remaining[0].startswith("-p") and len(remaining[0]) > 2)
        ):
            moved.append(remaining.pop(0))
        else:
            break
    if not remaining or (moved and remaining[0].startswith("-")):
        return ["status", *moved, *remaining]
    return [remaining[0], *moved, *remaining[1:]]


def _with_aliases(name: str) -> str:
    return ", ".join([name, *(alias for alias, entry in COMMANDS.items() if entry.alias_of == name)])


def _did_you_mean(name: str, names: Sequence[str] | dict[str, CommandEntry]) -> str:
    from difflib import get_close_matches

    similar = get_close_matches(name, list(names), n=2)
    return f" (did you mean {' or '.join(similar)}?)" if similar else ""


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG001
    if value and not ctx.resilient_parsing:
        click.echo(f"ao {__version__}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Commands concern the repository they are run in: -p PROJECT another one, -A all. `ao` alone is `ao status`.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
def cli() -> None:
    """Run a fleet of coding agents: each in its own Git worktree, on its own branch, its work never lost."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 daemon unreachable."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        result = cli.main(
            args=None if argv is None else list(argv),
            prog_name="ao",
            standalone_mode=False,
        )
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except AoError as error:
        return _print_error(str(error), error.exit_code)
    except click.UsageError as error:
        if isinstance(error, _NO_ARGUMENTS_ERRORS):
            error.show()
            return 2
        return _print_error(_usage_error_text(error), 2)
    except click.ClickException as error:
        return _print_error(error.format_message(), error.exit_code)
    except click.Abort as abort:
        return 1 if isinstance(abort.__cause__, EOFError) else 130
    except KeyboardInterrupt:
        return 130
    except SystemExit as exit_:  # click's answer to a closed pipe
        return exit_.code if isinstance(exit_.code, int) else 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except Exception as error:
        if os.environ.get("AO_DEBUG"):
            raise
        from agent_orchestrator.client.daemon_client import home_folder

        description = " ".join(f"{type(error).__name__}: {error}".split())
        return _print_error(
            f"unexpected error: {description}: this is a defect; AO_DEBUG=1 shows where, {home_folder()}/daemon.log has the daemon's side",
            1,
        )


def _print_error(text: str, code: int) -> int:
    try:
        print(f"ao: {_printable(' '.join(text.split()))}", file=sys.stderr)
    except BrokenPipeError:
        pass
    return code


def _printable(text: str) -> str:
    """Return the text with non-printable characters replaced by `?`, so that quoted text cannot control the terminal."""
    return text if text.isprintable() else "".join(character if character.isprintable() else "?" for character in text)


def _usage_error_text(error: click.UsageError) -> str:
    """Return a usage error in one line, with the help command to run."""
    text = error.format_message().rstrip(".")
    command = error.ctx.command_path if error.ctx else "ao"
    return f"{text}: see `{command} --help`"
