"""REST of issues, and of what is said about issues and merge requests."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TypeVar

from agent_orchestrator.testing.forge.wire import Answer
from agent_orchestrator.testing.gitlab import rules
from agent_orchestrator.testing.gitlab.calls import Call, Page, route
from agent_orchestrator.testing.gitlab.state import Discussion, Issue, MergeRequest, Note, Refused

Kind = TypeVar("Kind", bound=Issue)
_NO_POSITION = '400 Bad request - Note {:line_code=>["can\'t be blank", "must be a valid line code"]}'


def chosen(call: Call, items: Iterable[Kind]) -> list[Kind]:
    """Those that the query's filters leave, in its order."""
    found = list(items)
    state = call.query.get("state", "all")
    if state != "all":
        found = [one for one in found if one.state == state]
    wanted = call.names("labels")
    if wanted:
        found = [one for one in found if {name.lower() for name in wanted} <= {name.lower() for name in one.labels}]
    assignee = call.query.get("assignee_username") or call.query.get("assignee_username[]")
    if assignee:
        found = [one for one in found if assignee in [user.login for user in one.assignees]]
    if call.query.get("assignee_id") == "None":
        found = [one for one in found if not one.assignees]
    if after := call.query.get("updated_after"):
        found = [one for one in found if _at(one.updated_at) >= _at(after)]
    order = call.query.get("order_by", "created_at")
    turned = call.query.get("sort", "desc") == "desc"
    return sorted(found, key=lambda one: (getattr(one, order, one.created_at), one.id), reverse=turned)


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def change_common(call: Call, issue: Issue) -> None:
    """What a PUT may change of issues and merge requests alike."""
    user, world = call.who(), call.world
    if issue.author is not user and rules.level(issue.project, user) < 20:
        raise Refused(403, "403 Forbidden")
    new = {
        name: value
        for name, key in (("title", "title"), ("body", "description"))
        if (value := call.given(key)) is not None
    }
    people = call.people("assignee_ids")
    if people is not None:
        new["assignees"] = people
    world.change(issue, user, **new)
    labels = list(issue.labels) if call.names("labels") is None else call.names("labels") or []
    labels += [name for name in call.names("add_labels") or [] if name not in labels]
    gone = {name.lower() for name in call.names("remove_labels") or []}
    world.set_labels(issue, user, [name for name in labels if name.lower() not in gone])
    event = call.given("state_event")
    if event in ("close", "reopen"):
        world.set_state(issue, user, "closed" if event == "close" else "opened")


@route("GET", "PROJECT/issues")
def issues(call: Call) -> Page:
    return Page(chosen(call, call.project.issues.values()), call.show.issue)


@route("POST", "PROJECT/issues")
def new_issue(call: Call) -> Answer:
    user = call.who()
    made = call.world.open_issue(
        call.project,
        user,
        call.needed("title"),
        call.given("description"),
        call.names("labels") or [],
        call.people("assignee_ids") or [],
    )
    return Answer(201, call.show.issue(made))


@route("GET", "PROJECT/issues/{iid}")
def issue(call: Call) -> Answer:
    return Answer(body=call.show.issue(call.issue))


@route("PUT", "PROJECT/issues/{iid}")
def edit_issue(call: Call) -> Answer:
    change_common(call, call.issue)
    return Answer(body=call.show.issue(call.issue))


# --- notes and discussions


@route("GET", "PROJECT/{kind}/{iid}/notes")
def notes(call: Call) -> Page:
    on = call.noteable
    found = sorted(on.notes, key=lambda note: note.id, reverse=call.query.get("sort", "desc") == "desc")
    return Page(found, lambda note: call.show.note(note, on))


@route("POST", "PROJECT/{kind}/{iid}/notes")
def new_note(call: Call) -> Answer:
    on = call.noteable
    _, made = call.world.note(on, call.who(), call.needed("body"))
    return Answer(201, call.show.note(made, on))


def _note(call: Call) -> Note:
    found = next((note for note in call.noteable.notes if note.id == int(call.args["note_id"])), None)
    if found is None:
        raise Refused(404, "404 Note Not Found")
    return found


@route("GET", "PROJECT/{kind}/{iid}/notes/{note_id}")
def note(call: Call) -> Answer:
    return Answer(body=call.show.note(_note(call), call.noteable))


@route("PUT", "PROJECT/{kind}/{iid}/notes/{note_id}")
def edit_note(call: Call) -> Answer:
    found = _note(call)
    if found.author is not call.who():
        raise Refused(403, "403 Forbidden")
    found.body = call.needed("body")
    call.world.touch(found)
    call.world.touch(call.noteable)
    return Answer(body=call.show.note(found, call.noteable))


def _discussion(call: Call) -> Discussion:
    found = next((one for one in call.noteable.discussions if one.id == call.args["discussion"]), None)
    if found is None:
        raise Refused(404, "404 Discussion Not Found")
    return found


@route("GET", "PROJECT/{kind}/{iid}/discussions")
def discussions(call: Call) -> Page:
    return Page(call.noteable.discussions, call.show.discussion)


@route("POST", "PROJECT/{kind}/{iid}/discussions")
def new_discussion(call: Call) -> Answer:
    on, position = call.noteable, call.given("position")
    if position is not None:
        if not isinstance(on, MergeRequest) or not (position.get("new_line") or position.get("old_line")):
            raise Refused(400, _NO_POSITION)
        position = {"position_type": "text", "old_line": None, "new_line": None, "line_range": None, **position}
    made, _ = call.world.note(on, call.who(), call.needed("body"), position=position, threaded=True)
    return Answer(201, call.show.discussion(made))


@route("GET", "PROJECT/{kind}/{iid}/discussions/{discussion}")
def discussion(call: Call) -> Answer:
    return Answer(body=call.show.discussion(_discussion(call)))


@route("PUT", "PROJECT/{kind}/{iid}/discussions/{discussion}")
def settle_discussion(call: Call) -> Answer:
    found, user = _discussion(call), call.who()
    call.needed("resolved")
    if found.individual or not isinstance(found.on, MergeRequest):
        raise Refused(400, "400 Bad request - Discussion cannot be resolved")
    if rules.level(call.project, user) < rules.DEVELOPER and found.on.author is not user:
        raise Refused(403, "403 Forbidden")
    call.world.resolve(found, user, call.flag("resolved"))
    return Answer(body=call.show.discussion(found))


@route("POST", "PROJECT/{kind}/{iid}/discussions/{discussion}/notes")
def answer(call: Call) -> Answer:
    found = _discussion(call)
    _, made = call.world.note(found.on, call.who(), call.needed("body"), thread=found)
    return Answer(201, call.show.note(made, found.on))
