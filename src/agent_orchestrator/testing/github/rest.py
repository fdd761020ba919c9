"""REST: users, repositories, branches and refs, commits, rate limits, hooks."""

from __future__ import annotations

from agent_orchestrator.testing.forge import bare
from agent_orchestrator.testing.forge.wire import Answer
from agent_orchestrator.testing.github import pulls, rules
from agent_orchestrator.testing.github.calls import Call, Page, route
from agent_orchestrator.testing.github.shapes import Json
from agent_orchestrator.testing.github.state import Hook, Limit, Repo
from agent_orchestrator.testing.github.world import Refused, invalid


@route("GET", "/")
def root(call: Call) -> Answer:
    api = call.show.api
    return Answer(body={"current_user_url": f"{api}/user", "rate_limit_url": f"{api}/rate_limit"})


@route("GET", "/meta")
def meta(call: Call) -> Answer:
    del call
    return Answer(body={"verifiable_password_authentication": False, "installed_version": "3.19.0"})


@route("GET", "/rate_limit")
def rate_limit(call: Call) -> Answer:
    limits = call.token.limits if call.token else {}
    core, graphql = (limits.get(name, Limit(reset=call.world.clock() + 3600)) for name in ("core", "graphql"))
    return Answer(body={
        "resources": {"core": _limit(core), "graphql": _limit(graphql), "search": _limit(Limit(30, reset=call.world.clock() + 60))},
        "rate": _limit(core),
    })  # fmt: skip


def _limit(limit: Limit) -> Json:
    return {"limit": limit.limit, "used": limit.used, "remaining": limit.remaining, "reset": int(limit.reset)}


@route("GET", "/user")
def user(call: Call) -> Answer:
    return Answer(body=call.show.whole_user(call.require_user(), private=True))


@route("GET", "/users/{login}")
def get_user(call: Call) -> Answer:
    return Answer(body=call.show.whole_user(call.world.user(call.args["login"]), private=False))


@route("GET", "REPO")
def repo(call: Call) -> Answer:
    return Answer(body=call.show.whole_repo(call.repo), modified=call.repo.updated_at)


@route("PATCH", "REPO")
def edit_repo(call: Call) -> Answer:
    repository = call.repo
    call.world.need_push(repository, call.require_user())
    if name := call.parameter("name"):
        call.world.rename(repository, name)
    repository.delete_branch_on_merge = call.parameter("delete_branch_on_merge", repository.delete_branch_on_merge)
    repository.allow_auto_merge = call.parameter("allow_auto_merge", repository.allow_auto_merge)
    return Answer(body=call.show.whole_repo(repository))


@route("GET", "REPO/collaborators/{login}/permission")
def collaborator(call: Call) -> Answer:
    repository, person = call.repo, call.world.user(call.args["login"])
    call.world.need_push(repository, call.require_user())
    granted = rules.permission(repository, person)
    shape = call.show.user(person) | {"permissions": call.show.permissions(repository, person), "role_name": granted}
    return Answer(body={"permission": "read" if granted == "triage" else granted, "role_name": granted, "user": shape})


@route("POST", "REPO/forks")
def make_fork(call: Call) -> Answer:
    created = call.world.new_repo(call.require_user(), call.repo.name, parent=call.repo)
    return Answer(202, call.show.whole_repo(created))


def sha_of(repository: Repo, ref: str) -> str:
    sha = repository.head(ref) or bare.resolve(repository.path, ref)
    if sha is None:
        raise Refused(422, f"No commit found for SHA: {ref}")
    return sha


@route("GET", "REPO/branches/{branch*}/protection/required_status_checks")
def required_checks(call: Call) -> Answer:
    protection_record = call.repo.protections.get(call.args["branch"])
    call.world.need_push(call.repo, call.require_user())
    if protection_record is None:
        raise Refused(404, "Branch not protected")
    if not protection_record.checks:
        raise Refused(404, "Required status checks not enabled")
    url = f"{call.show.repo_url(call.repo)}/branches/{call.args['branch']}/protection/required_status_checks"
    return Answer(body={
        "url": url, "strict": protection_record.strict, "contexts": list(protection_record.checks), "contexts_url": f"{url}/contexts",
        "checks": [{"context": name, "app_id": None} for name in protection_record.checks],
    })  # fmt: skip


@route("GET", "REPO/branches/{branch*}/protection")
def protection(call: Call) -> Answer:
    protection_record = call.repo.protections.get(call.args["branch"])
    call.world.need_push(call.repo, call.require_user())
    if protection_record is None:
        raise Refused(404, "Branch not protected")
    url = f"{call.show.repo_url(call.repo)}/branches/{call.args['branch']}/protection"
    body: Json = {"url": url, "enforce_admins": {"url": f"{url}/enforce_admins", "enabled": True}}
    if protection_record.checks:
        body["required_status_checks"] = required_checks(call).body
    if protection_record.approvals:
        body["required_pull_request_reviews"] = {
            "url": f"{url}/required_pull_request_reviews", "dismiss_stale_reviews": False, "require_code_owner_reviews": False,
            "required_approving_review_count": protection_record.approvals, "require_last_push_approval": False,
        }  # fmt: skip
    return Answer(body=body)


@route("GET", "REPO/rules/branches/{branch*}")
def branch_rules(call: Call) -> Answer | Page:
    protection_record, rule_list = call.repo.protections.get(call.args["branch"]), []
    source = {"ruleset_source_type": "Repository", "ruleset_source": call.repo.full_name, "ruleset_id": 1}
    if protection_record and protection_record.checks:
        rule_list.append(source | {"type": "required_status_checks", "parameters": {
            "strict_required_status_checks_policy": protection_record.strict,
            "required_status_checks": [{"context": name} for name in protection_record.checks],
        }})  # fmt: skip
    if protection_record and protection_record.merge_queue:
        rule_list.append(source | {"type": "merge_queue", "parameters": {
            "check_response_timeout_minutes": 60, "grouping_strategy": "ALLGREEN", "max_entries_to_build": 1, "max_entries_to_merge": 1,
            "merge_method": "MERGE", "min_entries_to_merge": 1, "min_entries_to_merge_wait_minutes": 0,
        }})  # fmt: skip
    if protection_record and protection_record.approvals:
        rule_list.append(source | {"type": "pull_request", "parameters": {
            "dismiss_stale_reviews_on_push": False, "require_code_owner_review": False, "require_last_push_approval": False,
            "required_approving_review_count": protection_record.approvals, "required_review_thread_resolution": protection_record.resolved,
        }})  # fmt: skip
    return Page(rule_list, dict)


@route("GET", "REPO/branches")
def branches(call: Call) -> Page:
    repository, url = call.repo, f"{call.show.repo_url(call.repo)}/commits"
    names = [ref.removeprefix("refs/heads/") for ref in sorted(repository.refs) if ref.startswith("refs/heads/")]
    return Page(
        names,
        lambda name: {
            "name": name,
            "commit": {"sha": repository.head(name), "url": f"{url}/{repository.head(name)}"},
            "protected": name in repository.protections,
        },
    )


@route("GET", "REPO/branches/{branch*}")
def branch(call: Call) -> Answer:
    sha = call.repo.head(call.args["branch"])
    if sha is None:
        raise Refused(404, "Branch not found")
    return Answer(body=call.show.branch(call.repo, call.args["branch"], sha))


@route("GET", "REPO/git/ref/{ref*}")
def ref(call: Call) -> Answer:
    name = f"refs/{call.args['ref']}"
    if name not in call.repo.refs:
        raise Refused(404, "Not Found")
    return Answer(body=call.show.ref(call.repo, name, call.repo.refs[name]))


@route("POST", "REPO/git/refs")
def make_ref(call: Call) -> Answer:
    call.world.need_push(call.repo, call.require_user())
    name, sha = call.required_parameter("ref"), bare.resolve(call.repo.path, call.required_parameter("sha"))
    if sha is None or not name.startswith("refs/"):
        raise Refused(422, "Object does not exist")
    if name in call.repo.refs:
        raise Refused(422, "Reference already exists")
    bare.set_ref(call.repo.path, name, sha)
    pulls.refs_moved(call.world, call.repo, call.require_user())
    return Answer(201, call.show.ref(call.repo, name, sha))


@route("DELETE", "REPO/git/refs/{ref*}")
def delete_ref(call: Call) -> Answer:
    call.world.need_push(call.repo, call.require_user())
    name = f"refs/{call.args['ref']}"
    if name not in call.repo.refs:
        raise Refused(422, "Reference does not exist")
    if name.removeprefix("refs/heads/") in {call.repo.default_branch, *call.repo.protections}:
        raise Refused(422, "Cannot delete this protected ref")
    bare.delete_ref(call.repo.path, name)
    pulls.refs_moved(call.world, call.repo, call.require_user())
    return Answer(204)


@route("GET", "REPO/commits/{sha}")
def commit(call: Call) -> Answer:
    return Answer(body=call.show.commit(call.repo, sha_of(call.repo, call.args["sha"])))


@route("GET", "REPO/hooks")
def hooks(call: Call) -> Page:
    call.world.need_push(call.repo, call.require_user())
    return Page(list(call.repo.hooks.values()), call.show.hook)


@route("POST", "REPO/hooks")
def make_hook(call: Call) -> Answer:
    world, repository, config = call.world, call.repo, call.parameter("config") or {}
    world.need_push(repository, call.require_user())
    if call.token and not {"repo", "admin:repo_hook", "write:repo_hook"} & set(call.token.scopes):
        raise Refused(404, "Not Found")
    if not config.get("url"):
        raise invalid("Hook", "url", "url cannot be blank", "custom")
    if any(hook.url == config["url"] for hook in repository.hooks.values()):
        raise Refused(422, "Validation Failed", [
            {"resource": "Hook", "code": "custom", "message": "Hook already exists on this repository"}
        ])  # fmt: skip
    created = add_hook(call, repository, config)
    ping(call, created)
    return Answer(201, call.show.hook(created))


def add_hook(call: Call, repository: Repo, config: Json) -> Hook:
    events = call.parameter("events") or ["push"]
    created = call.world.keep(Hook(
        **call.world.base("H"), repo=repository, url=config["url"], secret=config.get("secret", ""), events=list(events),
        content_type=config.get("content_type", "form"), active=call.parameter("active", True),
    ))  # fmt: skip
    repository.hooks[created.id] = created
    return created


def ping(call: Call, hook: Hook) -> None:
    show = call.world.shapes
    call.world.hooks.deliver(hook, "ping", {
        "zen": "Design for failure.", "hook_id": hook.id, "hook": show.hook(hook), "repository": show.repo(hook.repo),
        "sender": show.user(call.require_user()),
    })  # fmt: skip


def find_hook(call: Call) -> Hook:
    call.world.need_push(call.repo, call.require_user())
    hook_record = call.repo.hooks.get(int(call.args["hook_id"]))
    if hook_record is None:
        raise Refused(404, "Not Found")
    return hook_record


@route("GET", "REPO/hooks/{hook_id}")
def hook(call: Call) -> Answer:
    return Answer(body=call.show.hook(find_hook(call)))


@route("PATCH", "REPO/hooks/{hook_id}")
def edit_hook(call: Call) -> Answer:
    hook_record, config = find_hook(call), call.parameter("config") or {}
    hook_record.url, hook_record.secret = config.get("url", hook_record.url), config.get("secret", hook_record.secret)
    hook_record.content_type = config.get("content_type", hook_record.content_type)
    hook_record.events, hook_record.active = (
        call.parameter("events", hook_record.events),
        call.parameter("active", hook_record.active),
    )
    return Answer(body=call.show.hook(hook_record))


@route("DELETE", "REPO/hooks/{hook_id}")
def delete_hook(call: Call) -> Answer:
    del call.repo.hooks[find_hook(call).id]
    return Answer(204)


@route("POST", "REPO/hooks/{hook_id}/pings")
def ping_hook(call: Call) -> Answer:
    ping(call, find_hook(call))
    return Answer(204)


@route("GET", "REPO/hooks/{hook_id}/deliveries")
def deliveries(call: Call) -> Page:
    return Page(find_hook(call).deliveries[::-1], call.show.delivery)


@route("POST", "REPO/hooks/{hook_id}/deliveries/{delivery_id}/attempts")
def redeliver(call: Call) -> Answer:
    delivery_id = int(call.args["delivery_id"])
    for delivery in find_hook(call).deliveries:
        if delivery.id == delivery_id:
            call.world.hooks.redeliver(delivery)
            return Answer(202, {})
    raise Refused(404, "Not Found")
