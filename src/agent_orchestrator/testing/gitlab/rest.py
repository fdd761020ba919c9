"""REST: people, projects, branches, commits, labels and hooks."""

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
    call.require_user()
    return Answer(body={"version": "18.5.0", "revision": "abcdef", "enterprise": True})


@route("GET", "/user")
def myself(call: Call) -> Answer:
    return Answer(body=call.show.myself(call.require_user()))


@route("GET", "/users")
def users(call: Call) -> Page:
    name = call.query.get("username", "").lower()
    matching = [user for user in call.world.users.values() if not name or user.login.lower() == name]
    return Page(matching, call.show.user)


@route("GET", "/personal_access_tokens/self")
def own_token(call: Call) -> Answer:
    user, token = call.require_user(), call.token
    assert token is not None
    return Answer(body={
        "id": user.id, "name": "ao", "revoked": False, "created_at": user.created_at, "description": None,
        "scopes": list(token.scopes), "user_id": user.id, "last_used_at": None, "active": True, "expires_at": token.ends,
    })  # fmt: skip


@route("GET", "/projects")
def projects(call: Call) -> Page:
    return Page(
        [candidate for candidate in call.world.projects.values() if rules.visible(candidate, call.viewer)],
        call.show.project,
    )


@route("GET", "PROJECT")
def project(call: Call) -> Answer:
    return Answer(body=call.show.project(call.project))


@route("GET", "PROJECT/members/all")
@route("GET", "PROJECT/members")
def members(call: Call) -> Page:
    project = call.project
    people = [user for user in call.world.users.values() if rules.level(project, user)]
    return Page(people, lambda user: call.show.member(project, user))


@route("GET", "PROJECT/members/all/{user_id}")
@route("GET", "PROJECT/members/{user_id}")
def member(call: Call) -> Answer:
    project, number = call.project, int(call.args["user_id"])
    user = next((candidate for candidate in call.world.users.values() if candidate.id == number), None)
    if user is None or not rules.level(project, user):
        raise Refused(404, "404 Not found")
    return Answer(body=call.show.member(project, user))


@route("GET", "PROJECT/repository/branches")
def branches(call: Call) -> Page:
    repository = call.project
    names = [ref.removeprefix("refs/heads/") for ref in sorted(repository.refs) if ref.startswith("refs/heads/")]
    return Page(names, lambda name: call.show.branch(repository, name))


@route("GET", "PROJECT/repository/branches/{branch}")
def branch(call: Call) -> Answer:
    if call.project.head(call.args["branch"]) is None:
        raise Refused(404, "404 Branch Not Found")
    return Answer(body=call.show.branch(call.project, call.args["branch"]))


@route("DELETE", "PROJECT/repository/branches/{branch}")
def delete_branch(call: Call) -> Answer:
    project, name = call.project, call.args["branch"]
    call.require_level(rules.DEVELOPER)
    if project.head(name) is None:
        raise Refused(404, "404 Branch Not Found")
    if name in project.protected:
        raise Refused(403, "403 Forbidden - Protected branch can't be removed")
    bare.delete_ref(project.path, f"refs/heads/{name}")
    changes.refs_moved(call.world, project, call.require_user())
    return Answer(204)


@route("GET", "PROJECT/protected_branches")
def protected_branches(call: Call) -> Page:
    repository = call.project
    return Page(repository.protected, lambda name: call.show.protected(repository, name))


@route("GET", "PROJECT/repository/commits/{sha}")
def commit(call: Call) -> Answer:
    project = call.project
    sha = project.head(call.args["sha"]) or bare.resolve(project.path, call.args["sha"])
    if sha is None:
        raise Refused(404, "404 Commit Not Found")
    return Answer(body=call.show.commit(project, sha))


@route("GET", "PROJECT/repository/files/{file}")
def file(call: Call) -> Answer:
    project, name, ref = call.project, call.args["file"], call.query.get("ref", "HEAD")
    text = bare.git(project.path, "show", f"{ref}:{name}", check=False)
    if not text:
        raise Refused(404, "404 File Not Found")
    return Answer(body={"file_name": name.rpartition("/")[2], "file_path": name, "size": len(text), "ref": ref})


@route("GET", "PROJECT/labels")
def labels(call: Call) -> Page:
    return Page(list(call.project.labels.values()), call.show.label)


@route("POST", "PROJECT/labels")
def new_label(call: Call) -> Answer:
    call.require_level(20)
    name = call.required_parameter("name")
    if name.lower() in call.project.labels:
        raise Refused(409, "Label already exists")
    created = call.world.label(call.project, name)
    created.color = call.parameter("color", created.color)
    return Answer(201, call.show.label(created))


def _hook(call: Call) -> Hook:
    call.require_level(rules.MAINTAINER)
    hook = call.project.hooks.get(int(call.args["hook_id"]))
    if hook is None:
        raise Refused(404, "404 Not found")
    return hook


def _events(call: Call) -> tuple[str, ...]:
    return tuple(
        name for name in HOOK_EVENTS if call.flag(name) or (name == "push_events" and call.parameter(name) is None)
    )


@route("GET", "PROJECT/hooks")
def hooks(call: Call) -> Page:
    call.require_level(rules.MAINTAINER)
    return Page(list(call.project.hooks.values()), call.show.hook)


@route("POST", "PROJECT/hooks")
def new_hook(call: Call) -> Answer:
    call.require_level(rules.MAINTAINER)
    created = call.world.new_hook(
        call.project, call.required_parameter("url"), str(call.parameter("token", "")), _events(call)
    )
    return Answer(201, call.show.hook(created))


@route("GET", "PROJECT/hooks/{hook_id}")
def hook(call: Call) -> Answer:
    return Answer(body=call.show.hook(_hook(call)))


@route("PUT", "PROJECT/hooks/{hook_id}")
def edit_hook(call: Call) -> Answer:
    hook = _hook(call)
    hook.url, hook.events = call.required_parameter("url"), _events(call)
    hook.secret = str(call.parameter("token", hook.secret))
    return Answer(body=call.show.hook(hook))


@route("DELETE", "PROJECT/hooks/{hook_id}")
def delete_hook(call: Call) -> Answer:
    del call.project.hooks[_hook(call).id]
    return Answer(204)
