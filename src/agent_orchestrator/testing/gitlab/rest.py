"""REST of people, projects, branches, commits, labels and hooks."""

from __future__ import annotations

from agent_orchestrator.testing.forge import bare
from agent_orchestrator.testing.forge.wire import Answer
from agent_orchestrator.testing.gitlab import changes, rules
from agent_orchestrator.testing.gitlab.calls import Call, Page, route
from agent_orchestrator.testing.gitlab.shapes import HOOK_EVENTS
from agent_orchestrator.testing.gitlab.state import Hook, Refused


@route("GET", "/version")
@route("GET", "/metadata")
def version(call: Call) -> Answer:
    call.who()
    return Answer(body={"version": "18.5.0", "revision": "abcdef", "enterprise": True})


@route("GET", "/user")
def myself(call: Call) -> Answer:
    return Answer(body=call.show.myself(call.who()))


@route("GET", "/users")
def users(call: Call) -> Page:
    name = call.query.get("username", "").lower()
    found = [user for user in call.world.users.values() if not name or user.login.lower() == name]
    return Page(found, call.show.user)


@route("GET", "/personal_access_tokens/self")
def own_token(call: Call) -> Answer:
    user, token = call.who(), call.token
    assert token is not None
    return Answer(body={
        "id": user.id, "name": "ao", "revoked": False, "created_at": user.created_at, "description": None,
        "scopes": list(token.scopes), "user_id": user.id, "last_used_at": None, "active": True, "expires_at": token.ends,
    })  # fmt: skip


@route("GET", "/projects")
def projects(call: Call) -> Page:
    return Page([one for one in call.world.projects.values() if rules.visible(one, call.viewer)], call.show.project)


@route("GET", "PROJECT")
def project(call: Call) -> Answer:
    return Answer(body=call.show.project(call.project))


@route("GET", "PROJECT/members/all")
@route("GET", "PROJECT/members")
def members(call: Call) -> Page:
    found = call.project
    people = [user for user in call.world.users.values() if rules.level(found, user)]
    return Page(people, lambda user: call.show.member(found, user))


@route("GET", "PROJECT/members/all/{user_id}")
@route("GET", "PROJECT/members/{user_id}")
def member(call: Call) -> Answer:
    found, number = call.project, int(call.args["user_id"])
    user = next((one for one in call.world.users.values() if one.id == number), None)
    if user is None or not rules.level(found, user):
        raise Refused(404, "404 Not found")
    return Answer(body=call.show.member(found, user))


@route("GET", "PROJECT/repository/branches")
def branches(call: Call) -> Page:
    found = call.project
    names = [ref.removeprefix("refs/heads/") for ref in sorted(found.refs) if ref.startswith("refs/heads/")]
    return Page(names, lambda name: call.show.branch(found, name))


@route("GET", "PROJECT/repository/branches/{branch}")
def branch(call: Call) -> Answer:
    if call.project.head(call.args["branch"]) is None:
        raise Refused(404, "404 Branch Not Found")
    return Answer(body=call.show.branch(call.project, call.args["branch"]))


@route("DELETE", "PROJECT/repository/branches/{branch}")
def delete_branch(call: Call) -> Answer:
    found, name = call.project, call.args["branch"]
    call.need(rules.DEVELOPER)
    if found.head(name) is None:
        raise Refused(404, "404 Branch Not Found")
    if name in found.protected:
        raise Refused(403, "403 Forbidden - Protected branch can't be removed")
    bare.delete_ref(found.path, f"refs/heads/{name}")
    changes.refs_moved(call.world, found, call.who())
    return Answer(204)


@route("GET", "PROJECT/protected_branches")
def protected_branches(call: Call) -> Page:
    found = call.project
    return Page(found.protected, lambda name: call.show.protected(found, name))


@route("GET", "PROJECT/repository/commits/{sha}")
def commit(call: Call) -> Answer:
    found = call.project
    sha = found.head(call.args["sha"]) or bare.resolve(found.path, call.args["sha"])
    if sha is None:
        raise Refused(404, "404 Commit Not Found")
    return Answer(body=call.show.commit(found, sha))


@route("GET", "PROJECT/repository/files/{file}")
def file(call: Call) -> Answer:
    found, name, ref = call.project, call.args["file"], call.query.get("ref", "HEAD")
    text = bare.git(found.path, "show", f"{ref}:{name}", check=False)
    if not text:
        raise Refused(404, "404 File Not Found")
    return Answer(body={"file_name": name.rpartition("/")[2], "file_path": name, "size": len(text), "ref": ref})


@route("GET", "PROJECT/labels")
def labels(call: Call) -> Page:
    return Page(list(call.project.labels.values()), call.show.label)


@route("POST", "PROJECT/labels")
def new_label(call: Call) -> Answer:
    call.need(20)
    name = call.needed("name")
    if name.lower() in call.project.labels:
        raise Refused(409, "Label already exists")
    made = call.world.label(call.project, name)
    made.color = call.given("color", made.color)
    return Answer(201, call.show.label(made))


def _hook(call: Call) -> Hook:
    call.need(rules.MAINTAINER)
    found = call.project.hooks.get(int(call.args["hook_id"]))
    if found is None:
        raise Refused(404, "404 Not found")
    return found


def _events(call: Call) -> tuple[str, ...]:
    return tuple(
        name for name in HOOK_EVENTS if call.flag(name) or (name == "push_events" and call.given(name) is None)
    )


@route("GET", "PROJECT/hooks")
def hooks(call: Call) -> Page:
    call.need(rules.MAINTAINER)
    return Page(list(call.project.hooks.values()), call.show.hook)


@route("POST", "PROJECT/hooks")
def new_hook(call: Call) -> Answer:
    call.need(rules.MAINTAINER)
    made = call.world.new_hook(call.project, call.needed("url"), str(call.given("token", "")), _events(call))
    return Answer(201, call.show.hook(made))


@route("GET", "PROJECT/hooks/{hook_id}")
def hook(call: Call) -> Answer:
    return Answer(body=call.show.hook(_hook(call)))


@route("PUT", "PROJECT/hooks/{hook_id}")
def edit_hook(call: Call) -> Answer:
    found = _hook(call)
    found.url, found.events = call.needed("url"), _events(call)
    found.secret = str(call.given("token", found.secret))
    return Answer(body=call.show.hook(found))


@route("DELETE", "PROJECT/hooks/{hook_id}")
def delete_hook(call: Call) -> Answer:
    del call.project.hooks[_hook(call).id]
    return Answer(204)
