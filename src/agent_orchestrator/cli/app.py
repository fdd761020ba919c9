"""`ao` itself: which command lives where, global options, and how errors are told."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from agent_orchestrator import __version__
from agent_orchestrator.errors import AoError


class Entry(NamedTuple):
    """A command that is not loaded yet."""

    place: str
    """`module:attribute` below this package."""
    summary: str
    alias_of: str = ""


EVERYDAY = {
    "start": Entry("daemon.start:start", "Start the daemon, register the repository here and open the dashboard."),
    "new": Entry("sessions.new:new", "Start a session for each task."),
    "spawn": Entry("sessions.new:new", "Same as new.", "new"),
    "status": Entry("sessions.status:status", "What runs, how far it is, and what needs you."),
    "list": Entry("sessions.status:status", "Same as status.", "status"),
    "ls": Entry("sessions.status:status", "Same as status.", "status"),
    "answer": Entry("sessions.answer:answer", "Answer the questions and permission requests that wait for you."),
    "send": Entry("sessions.control:send", "Send a message to a session's agent."),
    "prompt": Entry("sessions.control:send", "Same as send.", "send"),
    "attach": Entry("sessions.workspace:attach", "Show a session's real terminal."),
    "diff": Entry("sessions.history:diff", "Show a session's change."),
    "review": Entry("changes.review:review", "See and judge a session's change."),
    "merge": Entry("changes.review:merge", "Let sessions' changes land, through the merge queue."),
    "stop": Entry("sessions.control:stop", "Stop sessions; everything unsaved is saved first."),
    "restore": Entry("sessions.control:restore", "Bring a stopped, crashed or interrupted session back."),
    "resume": Entry("sessions.control:restore", "Same as restore.", "restore"),
    "doctor": Entry("daemon.doctor:doctor", "Check every prerequisite, each with its remedy."),
}
MORE = {
    "create": Entry("sessions.new:create", "Make named sessions whose agent starts at its first message."),
    "shutdown": Entry("daemon.start:shutdown", "Stop the daemon; sessions run on."),
    "dashboard": Entry("daemon.start:dashboard", "Open the dashboard in the browser, signed in."),
    "init": Entry("setup.projects:init", "Detect, prove and write the configuration for the repository here."),
    "trust": Entry("setup.projects:trust", "Allow a repository's configuration to run its commands."),
    "projects": Entry("setup.projects:projects", "List the projects."),
    "add-project": Entry("setup.projects:add_project", "Register a repository."),
    "remove-project": Entry("setup.projects:remove_project", "Forget a project; its files stay."),
    "issues": Entry("changes.issues:issues", "List the tracker's issues."),
    "issue": Entry("changes.issues:issue", "Open, show and change issues of the tracker."),
    "orchestrator": Entry(
        "sessions.orchestrator:orchestrator", "Give a goal to the project's coordinating agent, or see how it stands."
    ),
    "fix": Entry("changes.fix:fix", "Have failing tests and lint errors fixed: one agent per cause, verified, merged."),
    "backlog": Entry("changes.issues:backlog", "Show what would be taken up next, by which profile, and why not yet."),
    "plan": Entry("changes.plan:plan", "Make tasks of a goal, or of the open issues; show, change and apply plans."),
    "checks": Entry("changes.review:checks", "Show a session's checks, and why they fail."),
    "queue": Entry("changes.review:queue", "Show the merge queue: what is to land, in order."),
    "conflicts": Entry("changes.conflicts:conflicts", "Show which sessions will collide, and on what."),
    "reactions": Entry("setup.reactions:reactions", "Show the reaction rules in force, and what one would do."),
    "notify": Entry("setup.notify:notify", "Try the notifiers, by which you are told."),
    "undo": Entry("changes.review:undo", "Take a landing back by a new change."),
    "plugins": Entry(
        "setup.plugins:plugins",
        "List the plugins: where each comes from, what it declares that it needs, and whether it is in force.",
    ),
    "agents": Entry("setup.projects:agents", "List the agents and where they were found."),
    "permissions": Entry("sessions.answer:permissions", "Show, or take back, what you allowed agents for good."),
    "top": Entry("top:top", "Show the board on the whole terminal, and steer sessions by keys."),
    "usage": Entry("sessions.usage:usage", "Show the tokens and dollars that agents used."),
    "logs": Entry("sessions.history:logs", "Show what a session's agent said and did, or the daemon's own log."),
    "events": Entry("sessions.history:events", "Show the event log, follow it, or replay one."),
    "audit": Entry("daemon.audit:audit", "Show who did what, when and why; export it; see that nobody changed it."),
    "why": Entry("sessions.history:why", "Explain a session's status and last reactions."),
    "sh": Entry("sessions.workspace:sh", "Run a shell or a command in a session's workspace."),
    "path": Entry("sessions.workspace:path", "Print where a session's workspace is."),
    "open": Entry("sessions.open:open_session", "Open a session in a terminal, an editor or the browser."),
    "prune": Entry("daemon.doctor:prune", "Remove what is provably safe to remove."),
    "config": Entry("setup.config:config", "Read, change and check the configuration."),
    "config-help": Entry("setup.config:config_help", "Explain every key of the configuration."),
    "import": Entry(
        "setup.import_config:import_",
        "Take over another orchestrator's configuration, and say what became of each key.",
    ),
    "nodes": Entry("daemon.nodes:nodes", "List the machines of the cluster."),
    "drain": Entry("daemon.nodes:drain", "Move all sessions away from a machine of the cluster."),
    "secret": Entry(
        "setup.secrets:secret", "Keep secrets in the system's keyring: `${keyring:NAME}` in the configuration."
    ),
    "token": Entry("setup.tokens:token", "Make, list and revoke tokens; list and end the browsers that are signed in."),
    "skill": Entry("setup.skill:skill", "Teach coding agents to use `ao`."),
    "mcp": Entry("daemon.mcp:mcp", "Serve tools and resources to an MCP client, over standard input and output."),
    "api": Entry("api:api", "Send one request to the daemon's HTTP API."),
    "completion": Entry("setup.completion:completion", "Print the completion script for a shell."),
}
COMMANDS = EVERYDAY | MORE

_ALONE: tuple[type[Exception], ...] = tuple(filter(None, [getattr(click.exceptions, "NoArgsIsHelpError", None)]))
"""A group without a command, which is answered by what there is below it. Click 8.1 does that by itself."""
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

        module, _, attribute = entry.place.partition(":")
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
        for title, entries in (("Everyday", EVERYDAY), ("More", MORE)):
            with formatter.section(title):
                formatter.write_dl(
                    [(_with_aliases(name), entry.summary) for name, entry in entries.items() if not entry.alias_of]
                )


def _options_after_command(args: list[str]) -> list[str]:
    """`ao -p X status` means `ao status -p X`, and options without a command are those of `status`."""
    moved: list[str] = []
    rest = list(args)
    while rest:
        if rest[0] in ("-p", "--project") and len(rest) > 1:
            moved += [rest.pop(0), rest.pop(0)]
        elif (
            rest[0] in _MOVED_FLAGS
            or rest[0].startswith("--project=")
            or (rest[0].startswith("-p") and len(rest[0]) > 2)
        ):
            moved.append(rest.pop(0))
        else:
            break
    if not rest or (moved and rest[0].startswith("-")):
        return ["status", *moved, *rest]
    return [rest[0], *moved, *rest[1:]]


def _with_aliases(name: str) -> str:
    return ", ".join([name, *(other for other, entry in COMMANDS.items() if entry.alias_of == name)])


def _did_you_mean(name: str, names: Sequence[str] | dict[str, Entry]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, list(names), n=2)
    return f" (did you mean {' or '.join(close)}?)" if close else ""


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
        return _tell(str(error), error.exit_code)
    except click.UsageError as error:
        if isinstance(error, _ALONE):
            error.show()
            return 2
        return _tell(_usage(error), 2)
    except click.ClickException as error:
        return _tell(error.format_message(), error.exit_code)
    except click.Abort as abort:
        return 1 if isinstance(abort.__cause__, EOFError) else 130
    except KeyboardInterrupt:
        return 130
    except SystemExit as ended:  # click's answer to a closed pipe
        return ended.code if isinstance(ended.code, int) else 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except Exception as error:
        if os.environ.get("AO_DEBUG"):
            raise
        from agent_orchestrator.client.daemon_client import home_folder

        what = " ".join(f"{type(error).__name__}: {error}".split())
        return _tell(
            f"unexpected error: {what}: this is a defect; AO_DEBUG=1 shows where, {home_folder()}/daemon.log has the daemon's side",
            1,
        )


def _tell(text: str, code: int) -> int:
    try:
        print(f"ao: {_visible(' '.join(text.split()))}", file=sys.stderr)
    except BrokenPipeError:
        pass
    return code


def _visible(text: str) -> str:
    """What is wrong may quote strangers: nothing of it is for the terminal to obey."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in text)


def _usage(error: click.UsageError) -> str:
    """A usage error in one line, with where to read on."""
    text = error.format_message().rstrip(".")
    command = error.ctx.command_path if error.ctx else "ao"
    return f"{text}: see `{command} --help`"
