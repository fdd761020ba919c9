"""Issues of the tracker: `ao issues`, `ao issue`, `ao backlog`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from agent_orchestrator.base.http_client import quote, with_query
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import client, json_option, project_option, project_query, read_text, scope_options
from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.errors import NotFound

Issue = dict[str, Any]


class IssueNumber(int):
    """An issue's number that remembers the tracker's own name for it, such as LIN-12."""

    tracker_name = ""


class IssueNumberType(click.ParamType):  # type: ignore[type-arg]  # not generic in click 8.1
    """Parameter type of an issue: its number, 12 or #12, or its name in the tracker, LIN-12."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        prefix, _, text = str(value).removeprefix("#").rpartition("-")
        if not text.isascii() or not text.isdigit() or not int(text) or (prefix and not prefix.isidentifier()):
            self.fail(f"{value!r} is no issue's number", param, ctx)
        number = IssueNumber(text)
        number.tracker_name = str(value) if prefix.upper() not in ("", "GH") else ""
        return number


number_argument = click.argument("number", metavar="N", type=IssueNumberType())
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
    query = project_query(project, all_projects) | {"next": upcoming, "state": "closed" if closed else "open"}
    path = with_query("/api/issues", query)
    for label in labels:
        path += f"{'&' if '?' in path else '?'}label={quote(label)}"
    answer: dict[str, Any] = client().get(path)
    if as_json:
        out.print_json(answer)
        return
    has_several_projects = all_projects or len({issue["project"] for issue in answer["issues"]}) > 1
    rows = [_issue_row(issue, has_several_projects) for issue in answer["issues"]]
    header = ("ISSUE", "TITLE", "LABELS", "WHO", "WAITS FOR")
    empty_text = "No issue is closed." if closed else 'No issue is open. Open one: ao issue new "what is wanted"'
    _show_table(out.table(header, rows, shrink=1), empty_text, answer)


def _show_table(lines: list[str], empty_text: str, answer: dict[str, Any]) -> None:
    """Print the table or the text for an empty one, and note trackers that could not be read."""
    for failure in answer["unread"]:
        out.print_note(
            f"the issues of {failure['project']} could not be read, so there may be others: {failure['why']}"
        )
    if len(lines) > 1 or not answer["unread"]:
        out.print_lines(lines if len(lines) > 1 else [empty_text])


def _display_name(issue: Issue) -> str:
    """Return the issue's name for display: #12, or LIN-12."""
    return f"#{issue['key']}" if issue["key"].isdigit() else str(issue["key"])


def _issue_row(issue: Issue, with_project: bool) -> out.Row:
    return (
        issue["id"] if with_project else _display_name(issue),
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
    answer: dict[str, Any] = client().get("/api/backlog", project_query(project, all_projects))
    if as_json:
        out.print_json(answer)
        return
    has_several_projects = all_projects or len({entry["project"] for entry in answer["entries"]}) > 1
    rows = [
        (
            str(entry["position"]),
            entry["id"] if has_several_projects else _display_name(entry),
            entry["title"],
            ", ".join(entry["labels"]) or "-",
            entry["profile"] or entry["agent"] or "-",
            entry["matchedBy"] or "-",
            "; ".join(entry["reasons"]) or "-",
        )
        for entry in answer["entries"]
    ]
    header = ("", "ISSUE", "TITLE", "LABELS", "BY", "MATCHED BY", "NOT YET BECAUSE")
    empty_text = 'No issue is open. Open one: ao issue new "what is wanted"'
    _show_table(_backlog_lines(header, rows), empty_text, answer)


def _backlog_lines(header: out.Row, rows: Sequence[out.Row]) -> list[str]:
    """Return the lines of a table; if it is too wide for the terminal, the reasons are below their issues."""
    clean_rows = [[out.one_line(cell) for cell in row] for row in rows]
    widths = [max(map(out.display_width, column)) for column in zip(header, *clean_rows, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) <= out.terminal_width():
        return out.table(header, clean_rows)
    rows_without_reasons = [row[:-1] for row in clean_rows]
    lines = out.table(
        *out.drop_columns(header[:-1], rows_without_reasons, ("MATCHED BY", "LABELS"), shrink="TITLE", min_width=32),
        shrink=2,
    )
    for number in range(len(clean_rows), 0, -1):
        lines[number + 1 : number + 1] = out.wrap(clean_rows[number - 1][-1].strip("-"), " " * 6)
    return lines


@click.group()
@project_option
@click.pass_context
def issue(ctx: click.Context, project: str | None) -> None:
    """Open, show and change issues of the tracker."""
    ctx.obj = project


def _path(number: int | None, project: str | None, suffix: str = "") -> str:
    path, query = "/api/issues", {"project": project or click.get_current_context().obj}
    if number is None:
        return with_query(path, query)
    if isinstance(number, IssueNumber) and number.tracker_name:
        key = client().get(with_query(f"{path}/{number}", query))["key"]
        if key.casefold() != number.tracker_name.casefold():  # another team's may have the same number
            raise NotFound(
                f"there is no issue {number.tracker_name} here",
                f"{number} is called {_display_name({'key': key})}; ao issues lists all",
            )
    return with_query(f"{path}/{number}{suffix}", query)


def _update(ao: DaemonClient, number: int, project: str | None, change: dict[str, Any]) -> Issue:
    return dict(ao.request("PATCH", _path(number, project), change).json())


def _show_result(issue: Issue, as_json: bool, action: str) -> None:
    if as_json:
        out.print_json(issue)
    else:
        print(f"{_display_name(issue)} {action}: {out.one_line(issue['title'])}")


def _message_text(text: str | None) -> str:
    return (read_text("-") if text == "-" else text) or ""


@issue.command("new")
@click.argument("title", metavar="TITLE")
@message_option
@click.option("--label", "labels", metavar="L", multiple=True, help="A label; may be repeated.")
@click.option(
    "--after",
    metavar="N",
    multiple=True,
    type=IssueNumberType(),
    help="An issue that must be closed before; may be repeated.",
)
@project_option
@json_option
def new(
    title: str, text: str | None, labels: tuple[str, ...], after: tuple[int, ...], project: str | None, as_json: bool
) -> None:
    """Open an issue."""
    body = {"title": title, "body": _message_text(text), "labels": list(labels), "after": list(after)}
    issue = client().post(_path(None, project), body)
    _show_result(issue, as_json, "opened")
    if not as_json:
        print(f"  ao new {issue['key']}")


@issue.command()
@number_argument
@project_option
@json_option
def show(number: int, project: str | None, as_json: bool) -> None:
    """Show an issue with its comments."""
    issue = client().get(_path(number, project))
    if as_json:
        out.print_json(issue)
        return
    out.print_lines(_detail_lines(issue))


def _detail_lines(issue: Issue) -> list[str]:
    pairs = [
        ("State", issue["state"]),
        ("Labels", ", ".join(issue["labels"])),
        ("Who", issue["assignee"]),
        ("After", ", ".join(f"#{number}" for number in issue["after"])),
        ("Sessions", ", ".join(issue["sessions"])),
        ("Waits for", issue["waitingFor"]),
        ("Opened", f"{out.age(issue['createdAt'])} ago by {out.author_text(issue)}"),
    ]
    lines = [out.paint(f"{_display_name(issue)} {out.one_line(issue['title'])}", "bold")]
    lines += [f"  {label:<10} {out.one_line(value)}" for label, value in pairs if value]
    lines += ["", *(f"  {line}" for line in out.clean(issue["body"]).splitlines())] if issue["body"] else []
    for comment in issue["comments"]:
        lines += ["", f"  {out.author_text(comment)}, {out.age(comment['at'])} ago:"]
        lines += [f"    {line}" for line in out.clean(comment["body"]).splitlines()]
    return lines


@issue.command()
@number_argument
@click.option("-m", "--message", "text", metavar="TEXT", required=True, help="The text; `-` reads standard input.")
@project_option
@json_option
def comment(number: int, text: str, project: str | None, as_json: bool) -> None:
    """Say something about an issue."""
    issue = client().post(_path(number, project, "/comments"), {"body": _message_text(text)})
    _show_result(issue, as_json, "commented")


@issue.command()
@number_argument
@project_option
@json_option
def close(number: int, project: str | None, as_json: bool) -> None:
    """Close an issue."""
    _show_result(_update(client(), number, project, {"state": "closed"}), as_json, "closed")


@issue.command()
@number_argument
@project_option
@json_option
def reopen(number: int, project: str | None, as_json: bool) -> None:
    """Open a closed issue again."""
    _show_result(_update(client(), number, project, {"state": "open"}), as_json, "opened again")


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
        for name in labels:
            issue = ao.request("DELETE", _path(number, project, f"/labels/{quote(name)}")).json()
    else:
        issue = ao.post(_path(number, project, "/labels"), {"labels": list(labels)})
    _show_result(issue, as_json, f"has {', '.join(issue['labels']) or 'no label'}")


@issue.command()
@number_argument
@click.argument("who", metavar="[WHO]", required=False)
@project_option
@json_option
def assign(number: int, who: str | None, project: str | None, as_json: bool) -> None:
    """Give an issue to somebody, or to nobody."""
    issue = _update(client(), number, project, {"assignee": who})
    _show_result(issue, as_json, f"is for {out.one_line(issue['assignee'] or 'nobody')}")
