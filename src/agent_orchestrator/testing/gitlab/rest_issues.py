"""REST: issues, and the notes and discussions of issues and merge requests."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TypeVar

from agent_orchestrator.testing.forge.http import ForgeAnswer
from agent_orchestrator.testing.gitlab import rules
from agent_orchestrator.testing.gitlab.calls import GitLabCall, GitLabPage, route
from agent_orchestrator.testing.gitlab.state import Discussion, GitLabIssue, GitLabMergeRequest, GitLabRefused, Note

Kind = TypeVar("Kind", bound=GitLabIssue)
_NO_POSITION = '400 Bad request - Note {:line_code=>["can\'t be blank", "must be a valid line code"]}'


def filter_items(call: GitLabCall, items: Iterable[Kind]) -> list[Kind]:
    """Return the items that match the query's filters, in its order."""
    matching = list(items)
    state = call.query.get("state", "all")
    if state != "all":
        matching = [item for item in matching if item.state == state]
    labels = call.names("labels")
    if labels:
        matching = [
            item for item in matching if {name.lower() for name in labels} <= {name.lower() for name in item.labels}
        ]
    assignee = call.query.get("assignee_username") or call.query.get("assignee_username[]")
    if assignee:
        matching = [item for item in matching if assignee in [user.login for user in item.assignees]]
    if call.query.get("assignee_id") == "None":
        matching = [item for item in matching if not item.assignees]
    if after := call.query.get("updated_after"):
        matching = [item for item in matching if _at(item.updated_at) >= _at(after)]
    order = call.query.get("order_by", "created_at")
    is_descending = call.query.get("sort", "desc") == "desc"
    return sorted(matching, key=lambda item: (getattr(item, order, item.created_at), item.id), reverse=is_descending)


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def change_common_fields(call: GitLabCall, issue: GitLabIssue) -> None:
    """Apply the changes of a PUT that issues and merge requests have in common."""
    user, world = call.require_user(), call.world
    if issue.author is not user and rules.access_level(issue.project, user) < 20:
        raise GitLabRefused(403, "403 Forbidden")
    fields = {
        name: value
        for name, key in (("title", "title"), ("body", "description"))
        if (value := call.parameter(key)) is not None
    }
    people = call.people("assignee_ids")
    if people is not None:
        fields["assignees"] = people
    world.change_fields(issue, user, **fields)
    labels = list(issue.labels) if call.names("labels") is None else call.names("labels") or []
    labels += [name for name in call.names("add_labels") or [] if name not in labels]
    removed_names = {name.lower() for name in call.names("remove_labels") or []}
    world.set_labels(issue, user, [name for name in labels if name.lower() not in removed_names])
    event = call.parameter("state_event")
    if event in ("close", "reopen"):
        world.set_state(issue, user, "closed" if event == "close" else "opened")


@route("GET", "PROJECT/issues")
def issues(call: GitLabCall) -> GitLabPage:
    return GitLabPage(filter_items(call, call.project.issues.values()), call.shapes.issue)


@route("POST", "PROJECT/issues")
def new_issue(call: GitLabCall) -> ForgeAnswer:
    user = call.require_user()
    created = call.world.open_issue(
        call.project,
        user,
        call.required_parameter("title"),
        call.parameter("description"),
        call.names("labels") or [],
        call.people("assignee_ids") or [],
    )
    return ForgeAnswer(201, call.shapes.issue(created))


@route("GET", "PROJECT/issues/{iid}")
def issue(call: GitLabCall) -> ForgeAnswer:
    return ForgeAnswer(body=call.shapes.issue(call.issue))


@route("PUT", "PROJECT/issues/{iid}")
def edit_issue(call: GitLabCall) -> ForgeAnswer:
    change_common_fields(call, call.issue)
    return ForgeAnswer(body=call.shapes.issue(call.issue))


# --- notes and discussions


@route("GET", "PROJECT/{kind}/{iid}/notes")
def notes(call: GitLabCall) -> GitLabPage:
    noteable = call.noteable
    ordered = sorted(noteable.notes, key=lambda note: note.id, reverse=call.query.get("sort", "desc") == "desc")
    return GitLabPage(ordered, lambda note: call.shapes.note(note, noteable))


@route("POST", "PROJECT/{kind}/{iid}/notes")
def new_note(call: GitLabCall) -> ForgeAnswer:
    noteable = call.noteable
    _, created = call.world.note(noteable, call.require_user(), call.required_parameter("body"))
    return ForgeAnswer(201, call.shapes.note(created, noteable))


def _note(call: GitLabCall) -> Note:
    record = next((note for note in call.noteable.notes if note.id == int(call.args["note_id"])), None)
    if record is None:
        raise GitLabRefused(404, "404 Note Not Found")
    return record


@route("GET", "PROJECT/{kind}/{iid}/notes/{note_id}")
def note(call: GitLabCall) -> ForgeAnswer:
    return ForgeAnswer(body=call.shapes.note(_note(call), call.noteable))


@route("PUT", "PROJECT/{kind}/{iid}/notes/{note_id}")
def edit_note(call: GitLabCall) -> ForgeAnswer:
    own_note = _note(call)
    if own_note.author is not call.require_user():
        raise GitLabRefused(403, "403 Forbidden")
    own_note.body = call.required_parameter("body")
    call.world.touch(own_note)
    call.world.touch(call.noteable)
    return ForgeAnswer(body=call.shapes.note(own_note, call.noteable))


def _discussion(call: GitLabCall) -> Discussion:
    discussion = next(
        (candidate for candidate in call.noteable.discussions if candidate.id == call.args["discussion"]), None
    )
    if discussion is None:
        raise GitLabRefused(404, "404 Discussion Not Found")
    return discussion


@route("GET", "PROJECT/{kind}/{iid}/discussions")
def discussions(call: GitLabCall) -> GitLabPage:
    return GitLabPage(call.noteable.discussions, call.shapes.discussion)


@route("POST", "PROJECT/{kind}/{iid}/discussions")
def new_discussion(call: GitLabCall) -> ForgeAnswer:
    noteable, position = call.noteable, call.parameter("position")
    if position is not None:
        if not isinstance(noteable, GitLabMergeRequest) or not (position.get("new_line") or position.get("old_line")):
            raise GitLabRefused(400, _NO_POSITION)
        position = {"position_type": "text", "old_line": None, "new_line": None, "line_range": None, **position}
    created, _ = call.world.note(
        noteable, call.require_user(), call.required_parameter("body"), position=position, threaded=True
    )
    return ForgeAnswer(201, call.shapes.discussion(created))


@route("GET", "PROJECT/{kind}/{iid}/discussions/{discussion}")
def discussion(call: GitLabCall) -> ForgeAnswer:
    return ForgeAnswer(body=call.shapes.discussion(_discussion(call)))


@route("PUT", "PROJECT/{kind}/{iid}/discussions/{discussion}")
def resolve_discussion(call: GitLabCall) -> ForgeAnswer:
    thread, user = _discussion(call), call.require_user()
    call.required_parameter("resolved")
    if thread.individual or not isinstance(thread.on, GitLabMergeRequest):
        raise GitLabRefused(400, "400 Bad request - Discussion cannot be resolved")
    if rules.access_level(call.project, user) < rules.DEVELOPER and thread.on.author is not user:
        raise GitLabRefused(403, "403 Forbidden")
    call.world.resolve(thread, user, call.flag("resolved"))
    return ForgeAnswer(body=call.shapes.discussion(thread))


@route("POST", "PROJECT/{kind}/{iid}/discussions/{discussion}/notes")
def create_reply(call: GitLabCall) -> ForgeAnswer:
    thread = _discussion(call)
    _, created = call.world.note(thread.on, call.require_user(), call.required_parameter("body"), thread=thread)
    return ForgeAnswer(201, call.shapes.note(created, thread.on))
