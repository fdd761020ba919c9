"""What commands share: their client, and the arguments and options that many of them take."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from agent_orchestrator.base.http_client import Broken, Stream, quote
from agent_orchestrator.cli import out
from agent_orchestrator.client.daemon_client import Client, NotRunning
from agent_orchestrator.errors import AoError, UsageError

if TYPE_CHECKING:
    TextType = click.ParamType[str]
else:  # not generic in click 8.1
    TextType = click.ParamType

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def client(*, start: bool = True) -> Client:
    """The daemon's client for a command: notices are told on standard error, to a person also why it takes long."""
    ao = Client(start=start, notice=out.note, waiting=out.note if sys.stderr.isatty() else None)
    click.get_current_context().call_on_close(ao.close)
    return ao


class Live(TextType):
    """A name that the daemon knows; shells complete it from the file of its kind."""

    def __init__(self, kind: str, name: str = "") -> None:
        self.kind = kind
        self.name = name or kind.removesuffix("s")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not text.strip():
            self.fail(f"the {self.name}'s name is empty", param, ctx)
        return text


class LiveText(Live):
    """A text that may be such a name; empty ones are for the command to judge."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        return str(value)


SESSION, PROJECT, AGENT = Live("sessions"), Live("projects"), Live("agents")
PLAN, FIX, NODE = LiveText("plans"), Live("fixes", "run"), Live("nodes")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
session_argument = click.argument("session", metavar="S", type=SESSION)
project_option = click.option("-p", "--project", metavar="P", type=PROJECT, help="Another project than the one here.")
all_option = click.option("-A", "--all-projects", is_flag=True, help="All projects.")


def scope_options(command: Decorated) -> Decorated:
    """`-p` and `-A`."""
    return project_option(all_option(command))


def first_use_options(command: Decorated) -> Decorated:
    """`--yes` and `--no-prove`: whether what was detected in a new repository is proven."""
    command = click.option("--no-prove", is_flag=True, help="Write what was detected without running it.")(command)
    return click.option("-y", "--yes", is_flag=True, help="Do not ask: trust the commands, and prove them.")(command)


def scope(project: str | None, all_projects: bool) -> dict[str, str | int | None]:
    """The query that says which projects are meant; empty: the one here."""
    if project and all_projects:
        raise UsageError("-p and -A exclude each other", "give one of them")
    return {"project": project, "all": all_projects}


def session_path(session: str, rest: str = "") -> str:
    """The path of a session's route."""
    return f"/api/sessions/{quote(session)}{rest}"


def read_text(file: str) -> str:
    """The text of a file, or of standard input for `-`."""
    try:
        if file == "-":
            return sys.stdin.read()
        with open(file, encoding="utf-8") as opened:
            return opened.read()
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8 text", "convert it first") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", "check its name") from None


def text_of(words: tuple[str, ...], file: str | None, what: str) -> str:
    """A text given as words, as `-` for standard input, or as a file; not as two of them."""
    if file and words:
        raise UsageError(f"the {what} is given twice, as text and as a file", "give one of them")
    text = read_text(file) if file else read_text("-") if words == ("-",) else " ".join(words)
    if not text.strip():
        raise UsageError(f"the {what} is empty", "give it as text, with --file FILE, or `-` for standard input")
    return text


def interactive() -> bool:
    """Whether a person sits at both ends."""
    return can_answer() and sys.stdout.isatty()


def can_answer() -> bool:
    """Whether a person can be asked, wherever the words go."""
    return sys.stdin.isatty()


def editor() -> str | None:
    """The person's editor, as it would be typed."""
    return os.environ.get("VISUAL") or os.environ.get("EDITOR")


def follow(ao: Client, path: str, use: Callable[[Stream], None], last: str = "") -> NoReturn:
    """Use the event stream from after event `last`, again and again as the daemon goes and comes; it is not started for that."""
    while True:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
        try:
            with ao.stream("GET", path, headers=headers) as stream:
                ao.start = False
                try:
                    use(stream)
                finally:
                    last = stream.last_id or last
        except (Broken, NotRunning):
            if ao.start:
                raise
            ao.close()
        time.sleep(0.2)


class Failures:
    """Errors of a command that goes on with the rest; each is told at once."""

    def __init__(self) -> None:
        self.code = 0

    def tell(self, error: AoError) -> None:
        """Tell of one; the first one's exit code counts."""
        out.note(str(error))
        self.code = self.code or error.exit_code
