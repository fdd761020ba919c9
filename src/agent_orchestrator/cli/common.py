"""What commands share: the client, and the arguments and options that many of them take."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from agent_orchestrator.base.http_client import ConnectionBroken, StreamedResponse, quote
from agent_orchestrator.cli import out
from agent_orchestrator.client.daemon_client import DaemonClient, NotRunning
from agent_orchestrator.errors import AoError, UsageError

if TYPE_CHECKING:
    TextType = click.ParamType[str]
else:  # not generic in click 8.1
    TextType = click.ParamType

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def client(*, start: bool = True) -> DaemonClient:
    """Return the daemon's client for a command; notices are printed on standard error, waiting notes only on a terminal."""
    ao = DaemonClient(start=start, notice=out.print_note, waiting=out.print_note if sys.stderr.isatty() else None)
    click.get_current_context().call_on_close(ao.close)
    return ao


class DaemonName(TextType):
    """Parameter type of a name that the daemon knows; shells complete it from the file of its kind."""

    def __init__(self, kind: str, name: str = "") -> None:
        self.kind = kind
        self.name = name or kind.removesuffix("s")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not text.strip():
            self.fail(f"the {self.name}'s name is empty", param, ctx)
        return text


class DaemonNameOrText(DaemonName):
    """Parameter type of a text that may be such a name; the command itself checks empty ones."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        return str(value)


SESSION, PROJECT, AGENT = DaemonName("sessions"), DaemonName("projects"), DaemonName("agents")
PLAN, FIX, NODE = DaemonNameOrText("plans"), DaemonName("fixes", "run"), DaemonName("nodes")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
session_argument = click.argument("session", metavar="S", type=SESSION)
project_option = click.option("-p", "--project", metavar="P", type=PROJECT, help="Another project than the one here.")
all_option = click.option("-A", "--all-projects", is_flag=True, help="All projects.")


def scope_options(command: Decorated) -> Decorated:
    """Add the options `-p` and `-A` to a command."""
    return project_option(all_option(command))


def first_use_options(command: Decorated) -> Decorated:
    """Add the options `--yes` and `--no-prove` to a command that may register a new repository."""
    command = click.option("--no-prove", is_flag=True, help="Write what was detected without running it.")(command)
    return click.option("-y", "--yes", is_flag=True, help="Do not ask: trust the commands, and prove them.")(command)


def project_query(project: str | None, all_projects: bool) -> dict[str, str | int | None]:
    """Return the query that selects the projects; it is empty for the project here."""
    if project and all_projects:
        raise UsageError("-p and -A exclude each other", "give one of them")
    return {"project": project, "all": all_projects}


def session_path(session: str, suffix: str = "") -> str:
    """Return the path of a session's route."""
    return f"/api/sessions/{quote(session)}{suffix}"


def read_text(file: str) -> str:
    """Return the text of a file, or of standard input for `-`."""
    try:
        if file == "-":
            return sys.stdin.read()
        with open(file, encoding="utf-8") as opened:
            return opened.read()
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8 text", "convert it first") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", "check its name") from None


def read_argument(words: tuple[str, ...], file: str | None, what: str) -> str:
    """Return a text given as words, as `-` for standard input, or as a file; raise UsageError if it is given twice or empty."""
    if file and words:
        raise UsageError(f"the {what} is given twice, as text and as a file", "give one of them")
    text = read_text(file) if file else read_text("-") if words == ("-",) else " ".join(words)
    if not text.strip():
        raise UsageError(f"the {what} is empty", "give it as text, with --file FILE, or `-` for standard input")
    return text


def is_interactive() -> bool:
    """Return whether standard input and standard output are terminals."""
    return can_ask() and sys.stdout.isatty()


def can_ask() -> bool:
    """Return whether standard input is a terminal, so that a person can be asked."""
    return sys.stdin.isatty()


def editor_command() -> str | None:
    """Return the person's editor command, or None if none is set."""
    return os.environ.get("VISUAL") or os.environ.get("EDITOR")


def follow_events(
    ao: DaemonClient, path: str, handle: Callable[[StreamedResponse], None], last_id: str = ""
) -> NoReturn:
    """Handle the event stream from after event `last_id` for ever and reconnect after each break; a stopped daemon is not started."""
    while True:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        try:
            with ao.stream("GET", path, headers=headers) as stream:
                ao.start = False
                try:
                    handle(stream)
                finally:
                    last_id = stream.last_id or last_id
        except (ConnectionBroken, NotRunning):
            if ao.start:
                raise
            ao.close()
        time.sleep(0.2)


class Failures:
    """Errors of a command that continues with its other arguments; each is printed at once."""

    def __init__(self) -> None:
        self.code = 0

    def report(self, error: AoError) -> None:
        """Print an error; the exit code of the first one is kept."""
        out.print_note(str(error))
        self.code = self.code or error.exit_code
