"""The tracker: `ao issues`, `ao issue`, `ao backlog`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from agent_orchestrator.base.http_client import quote, with_query
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import client, json_option, project_option, read_text, scope, scope_options
from agent_orchestrator.client.daemon_client import Client
from agent_orchestrator.errors import NotFound

Issue = dict[str, Any]


class Named(int):
    """The number of an issue that was written as its tracker calls it: LIN-12."""

    written = ""


class Number(click.ParamType):  # type: ignore[type-arg]  # not generic in click 8.1
    """An issue's number, 12 or #12, or the name that the tracker has for it, LIN-12."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        prefix, _, text = str(value).removeprefix("#").rpartition("-")
        if not text.isascii() or not text.isdigit() or not int(text) or (prefix and not prefix.isidentifier()):
            self.fail(f"{value!r} is no issue's number", param, ctx)
        number = Named(text)
        number.written = str(value) if prefix.upper() not in ("", "GH") else ""
        return number


number_argument = click.argument("number", metavar="N", type=Number())
message_option = click.option("-m", "--message", "text", metavar="TEXT", help="The text; `-` reads standard input.")


@click.command()
@click.option("--next", "upcoming", is_flag=True, help="In the order they would be taken up, and why not yet.")
@click.option("--label", "labels", metavar="L", multiple=True, help="Only those with this label; may be repeated.")
@click.option("--closed", is_flag=True, help="The closed ones.")
@scope_options
@json_option
def issues(
    upcoming: bool, labels: tuple[str, ...], closed: bool, project: str | None, all_projects: bool, as_json: bool
) -> None:
    """List the tracker's issues.

    A session for one: `ao new N`.
    """
    query = scope(project, all_projects) | {"next": upcoming, "state": "closed" if closed else "open"}
    path = with_query("/api/issues", query)
    for label in labels:
        path += f"{'&' if '?' in path else '?'}label={quote(label)}"
    found: dict[str, Any] = client().get(path)
    if as_json:
        out.print_json(found)
        return
    several = all_projects or len({each["project"] for each in found["issues"]}) > 1
    rows = [_row(each, several) for each in found["issues"]]
    header = ("ISSUE", "TITLE", "LABELS", "WHO", "WAITS FOR")
    none = "No issue is closed." if closed else 'No issue is open. Open one: ao issue new "what is wanted"'
    _show(out.table(header, rows, shrink=1), none, found)


def _show(lines: list[str], none: str, found: dict[str, Any]) -> None:
    """What there is; where a tracker could not be read, that nobody knows whether there is more."""
    for each in found["unread"]:
        out.note(f"the issues of {each['project']} could not be read, so there may be others: {each['why']}")
    if len(lines) > 1 or not found["unread"]:
        out.show(lines if len(lines) > 1 else [none])


def _name(issue: Issue) -> str:
    """As people write it: #12, or LIN-12."""
    return f"#{issue['key']}" if issue["key"].isdigit() else str(issue["key"])


def _row(issue: Issue, with_project: bool) -> out.Row:
    return (
        issue["id"] if with_project else _name(issue),
        issue["title"],
        ", ".join(issue["labels"]) or "-",
        issue["assignee"] or "-",
        issue["waitingFor"] or "-",
    )


@click.command()
@scope_options
@json_option
def backlog(project: str | None, all_projects: bool, as_json: bool) -> None:
    """Show what would be taken up next, by which profile, and why not yet.

    A profile takes issues by its `filters`; `orchestrator.autoAssign` lets it do so by itself.
    """
    found: dict[str, Any] = client().get("/api/backlog", scope(project, all_projects))
    if as_json:
        out.print_json(found)
        return
    several = all_projects or len({each["project"] for each in found["entries"]}) > 1
    rows = [
        (
            str(each["position"]),
            each["id"] if several else _name(each),
            each["title"],
            ", ".join(each["labels"]) or "-",
            each["profile"] or each["agent"] or "-",
            each["matchedBy"] or "-",
            "; ".join(each["reasons"]) or "-",
        )
        for each in found["entries"]
    ]
    header = ("", "ISSUE", "TITLE", "LABELS", "BY", "MATCHED BY", "NOT YET BECAUSE")
    none = 'No issue is open. Open one: ao issue new "what is wanted"'
    _show(_backlog_lines(header, rows), none, found)


def _backlog_lines(header: out.Row, found: Sequence[out.Row]) -> list[str]:
    """A table; where it is too wide for the terminal, the reasons stand below their issues, whole."""
    rows = [[out.one_line(cell) for cell in row] for row in found]
    widths = [max(map(out.cells, column)) for column in zip(header, *rows, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) <= out.width():
        return out.table(header, rows)
    most = [row[:-1] for row in rows]
    lines = out.table(*out.fitting(header[:-1], most, ("MATCHED BY", "LABELS"), shrink="TITLE", least=32), shrink=2)
    for place in range(len(rows), 0, -1):
        lines[place + 1 : place + 1] = out.wrapped(rows[place - 1][-1].strip("-"), " " * 6)
    return lines


@click.group()
@project_option
@click.pass_context
def issue(ctx: click.Context, project: str | None) -> None:
    """Open, show and change issues of the tracker."""
    ctx.obj = project


def _path(number: int | None, project: str | None, rest: str = "") -> str:
    where, query = "/api/issues", {"project": project or click.get_current_context().obj}
    if number is None:
        return with_query(where, query)
    if isinstance(number, Named) and number.written:
        key = client().get(with_query(f"{where}/{number}", query))["key"]
        if key.casefold() != number.written.casefold():  # another team's may have the same number
            raise NotFound(
                f"there is no issue {number.written} here",
                f"{number} is called {_name({'key': key})}; ao issues lists all",
            )
    return with_query(f"{where}/{number}{rest}", query)


def _change(ao: Client, number: int, project: str | None, change: dict[str, Any]) -> Issue:
    return dict(ao.request("PATCH", _path(number, project), change).json())


def _tell(found: Issue, as_json: bool, what: str) -> None:
    if as_json:
        out.print_json(found)
    else:
        print(f"{_name(found)} {what}: {out.one_line(found['title'])}")


def _given(text: str | None) -> str:
    return (read_text("-") if text == "-" else text) or ""


@issue.command("new")
@click.argument("title", metavar="TITLE")
@message_option
@click.option("--label", "labels", metavar="L", multiple=True, help="A label; may be repeated.")
@click.option(
    "--after", metavar="N", multiple=True, type=Number(), help="An issue that must be closed before; may be repeated."
)
@project_option
@json_option
def new(
    title: str, text: str | None, labels: tuple[str, ...], after: tuple[int, ...], project: str | None, as_json: bool
) -> None:
    """Open an issue."""
    body = {"title": title, "body": _given(text), "labels": list(labels), "after": list(after)}
    made = client().post(_path(None, project), body)
    _tell(made, as_json, "opened")
    if not as_json:
        print(f"  ao new {made['key']}")


@issue.command()
@number_argument
@project_option
@json_option
def show(number: int, project: str | None, as_json: bool) -> None:
    """Show an issue with its comments."""
    found = client().get(_path(number, project))
    if as_json:
        out.print_json(found)
        return
    out.show(_lines(found))


def _lines(found: Issue) -> list[str]:
    pairs = [
        ("State", found["state"]),
        ("Labels", ", ".join(found["labels"])),
        ("Who", found["assignee"]),
        ("After", ", ".join(f"#{number}" for number in found["after"])),
        ("Sessions", ", ".join(found["sessions"])),
        ("Waits for", found["waitingFor"]),
        ("Opened", f"{out.age(found['createdAt'])} ago by {out.author(found)}"),
    ]
    lines = [out.paint(f"{_name(found)} {out.one_line(found['title'])}", "bold")]
    lines += [f"  {label:<10} {out.one_line(value)}" for label, value in pairs if value]
    lines += ["", *(f"  {line}" for line in out.clean(found["body"]).splitlines())] if found["body"] else []
    for each in found["comments"]:
        lines += ["", f"  {out.author(each)}, {out.age(each['at'])} ago:"]
        lines += [f"    {line}" for line in out.clean(each["body"]).splitlines()]
    return lines


@issue.command()
@number_argument
@click.option("-m", "--message", "text", metavar="TEXT", required=True, help="The text; `-` reads standard input.")
@project_option
@json_option
def comment(number: int, text: str, project: str | None, as_json: bool) -> None:
    """Say something about an issue."""
    said = client().post(_path(number, project, "/comments"), {"body": _given(text)})
    _tell(said, as_json, "commented")


@issue.command()
@number_argument
@project_option
@json_option
def close(number: int, project: str | None, as_json: bool) -> None:
    """Close an issue."""
    _tell(_change(client(), number, project, {"state": "closed"}), as_json, "closed")


@issue.command()
@number_argument
@project_option
@json_option
def reopen(number: int, project: str | None, as_json: bool) -> None:
    """Open a closed issue again."""
    _tell(_change(client(), number, project, {"state": "open"}), as_json, "opened again")


@issue.command()
@number_argument
@click.argument("labels", metavar="L...", nargs=-1, required=True)
@click.option("--remove", is_flag=True, help="Take them off.")
@project_option
@json_option
def label(number: int, labels: tuple[str, ...], remove: bool, project: str | None, as_json: bool) -> None:
    """Add labels to an issue, or take them off."""
    ao = client()
    if remove:
        for each in labels:
            found = ao.request("DELETE", _path(number, project, f"/labels/{quote(each)}")).json()
    else:
        found = ao.post(_path(number, project, "/labels"), {"labels": list(labels)})
    _tell(found, as_json, f"has {', '.join(found['labels']) or 'no label'}")


@issue.command()
@number_argument
@click.argument("who", metavar="[WHO]", required=False)
@project_option
@json_option
def assign(number: int, who: str | None, project: str | None, as_json: bool) -> None:
    """Give an issue to somebody, or to nobody."""
    found = _change(client(), number, project, {"assignee": who})
    _tell(found, as_json, f"is for {out.one_line(found['assignee'] or 'nobody')}")
