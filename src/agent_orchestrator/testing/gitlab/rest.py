"""REST: people, projects, branches, commits, labels and hooks."""

from __future__ import annotations

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.forge.http import ForgeAnswer
from agent_orchestrator.testing.gitlab import merge_requests, rules
from agent_orchestrator.testing.gitlab.calls import GitLabCall, GitLabPage, route
from agent_orchestrator.testing.gitlab.shapes import HOOK_EVENTS
from agent_orchestrator.testing.gitlab.state import GitLabRefused, GitLabWebhook


@route("GET", "/version")
@route("GET", "/metadata")
def version(call: GitLabCall) -> ForgeAnswer:
    call.require_user()
    return ForgeAnswer(body={"version": "18.5.0", "revision": "abcdef", "enterprise": True})


@route("GET", "/user")
def myself(call: GitLabCall) -> ForgeAnswer:
    return ForgeAnswer(body=call.shapes.myself(call.require_user()))


@route("GET", "/users")
def users(call: GitLabCall) -> GitLabPage:
    name = call.query.get("username", "").lower()
    matching = [user for user in call.world.users.values() if not name or user.login.lower() == name]
    return GitLabPage(matching, call.shapes.user)


@route("GET", "/personal_access_tokens/self")
def own_token(call: GitLabCall) -> ForgeAnswer:
    user, token = call.require_user(), call.token
    assert token is not None
    return ForgeAnswer(body={
        "id": user.id, "name": "ao", "revoked": False, "created_at": user.created_at, "description": None,
        "scopes": list(token.scopes), "user_id": user.id, "last_used_at": None, "active": True, "expires_at": token.ends,
    })  # fmt: skip


@route("GET", "/projects")
def projects(call: GitLabCall) -> GitLabPage:
    return GitLabPage(
        [candidate for candidate in call.world.projects.values() if rules.is_visible(candidate, call.viewer)],
        call.shapes.project,
    )


@route("GET", "PROJECT")
def project(call: GitLabCall) -> ForgeAnswer:
    return ForgeAnswer(body=call.shapes.project(call.project))


@route("GET", "PROJECT/members/all")
@route("GET", "PROJECT/members")
def members(call: GitLabCall) -> GitLabPage:
    project = call.project
    people = [user for user in call.world.users.values() if rules.access_level(project, user)]
    return GitLabPage(people, lambda user: call.shapes.member(project, user))


@route("GET", "PROJECT/members/all/{user_id}")
@route("GET", "PROJECT/members/{user_id}")
def member(call: GitLabCall) -> ForgeAnswer:
    project, number = call.project, int(call.args["user_id"])
    user = next((candidate for candidate in call.world.users.values() if candidate.id == number), None)
    if user is None or not rules.access_level(project, user):
        raise GitLabRefused(404, "404 Not found")
    return ForgeAnswer(body=call.shapes.member(project, user))


@route("GET", "PROJECT/repository/branches")
def branches(call: GitLabCall) -> GitLabPage:
    repository = call.project
    names = [ref.removeprefix("refs/heads/") for ref in sorted(repository.refs) if ref.startswith("refs/heads/")]
    return GitLabPage(names, lambda name: call.shapes.branch(repository, name))


@route("GET", "PROJECT/repository/branches/{branch}")
def branch(call: GitLabCall) -> ForgeAnswer:
    if call.project.head(call.args["branch"]) is None:
        raise GitLabRefused(404, "404 Branch Not Found")
    return ForgeAnswer(body=call.shapes.branch(call.project, call.args["branch"]))


@route("DELETE", "PROJECT/repository/branches/{branch}")
def delete_branch(call: GitLabCall) -> ForgeAnswer:
    project, name = call.project, call.args["branch"]
    call.require_level(rules.DEVELOPER)
    if project.head(name) is None:
        raise GitLabRefused(404, "404 Branch Not Found")
    if name in project.protected:
        raise GitLabRefused(403, "403 Forbidden - Protected branch can't be removed")
    bare_repository.delete_ref(project.path, f"refs/heads/{name}")
    merge_requests.process_ref_changes(call.world, project, call.require_user())
    return ForgeAnswer(204)


@route("GET", "PROJECT/protected_branches")
def protected_branches(call: GitLabCall) -> GitLabPage:
    repository = call.project
    return GitLabPage(repository.protected, lambda name: call.shapes.protected(repository, name))


@route("GET", "PROJECT/repository/commits/{sha}")
def commit(call: GitLabCall) -> ForgeAnswer:
    project = call.project
    sha = project.head(call.args["sha"]) or bare_repository.resolve(project.path, call.args["sha"])
    if sha is None:
        raise GitLabRefused(404, "404 Commit Not Found")
    return ForgeAnswer(body=call.shapes.commit(project, sha))


@route("GET", "PROJECT/repository/files/{file}")
def file(call: GitLabCall) -> ForgeAnswer:
    project, name, ref = call.project, call.args["file"], call.query.get("ref", "HEAD")
    text = bare_repository.git(project.path, "show", f"{ref}:{name}", check=False)
    if not text:
        raise GitLabRefused(404, "404 File Not Found")
    return ForgeAnswer(body={"file_name": name.rpartition("/")[2], "file_path": name, "size": len(text), "ref": ref})


@route("GET", "PROJECT/labels")
def labels(call: GitLabCall) -> GitLabPage:
    return GitLabPage(list(call.project.labels.values()), call.shapes.label)


@route("POST", "PROJECT/labels")
def new_label(call: GitLabCall) -> ForgeAnswer:
    call.require_level(20)
    name = call.required_parameter("name")
    if name.lower() in call.project.labels:
        raise GitLabRefused(409, "Label already exists")
    created = call.world.label(call.project, name)
    created.color = call.parameter("color", created.color)
    return ForgeAnswer(201, call.shapes.label(created))


def _hook(call: GitLabCall) -> GitLabWebhook:
    call.require_level(rules.MAINTAINER)
    hook = call.project.hooks.get(int(call.args["hook_id"]))
    if hook is None:
        raise GitLabRefused(404, "404 Not found")
    return hook


def _events(call: GitLabCall) -> tuple[str, ...]:
    return tuple(
        name for name in HOOK_EVENTS if call.flag(name) or (name == "push_events" and call.parameter(name) is None)
    )


@route("GET", "PROJECT/hooks")
def hooks(call: GitLabCall) -> GitLabPage:
    call.require_level(rules.MAINTAINER)
    return GitLabPage(list(call.project.hooks.values()), call.shapes.hook)


@route("POST", "PROJECT/hooks")
def new_hook(call: GitLabCall) -> ForgeAnswer:
    call.require_level(rules.MAINTAINER)
    created = call.world.new_hook(
        call.project, call.required_parameter("url"), str(call.parameter("token", "")), _events(call)
    )
    return ForgeAnswer(201, call.shapes.hook(created))


@route("GET", "PROJECT/hooks/{hook_id}")
def hook(call: GitLabCall) -> ForgeAnswer:
    return ForgeAnswer(body=call.shapes.hook(_hook(call)))


@route("PUT", "PROJECT/hooks/{hook_id}")
def edit_hook(call: GitLabCall) -> ForgeAnswer:
    hook = _hook(call)
    hook.url, hook.events = call.required_parameter("url"), _events(call)
    hook.secret = str(call.parameter("token", hook.secret))
    return ForgeAnswer(body=call.shapes.hook(hook))


@route("DELETE", "PROJECT/hooks/{hook_id}")
def delete_hook(call: GitLabCall) -> ForgeAnswer:
    del call.project.hooks[_hook(call).id]
    return ForgeAnswer(204)
