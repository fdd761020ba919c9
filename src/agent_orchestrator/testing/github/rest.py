"""REST: who one is, repositories, branches and refs, commits, limits, hooks."""

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
    return Answer(body=call.show.whole_user(call.who(), private=True))


@route("GET", "/users/{login}")
def one_user(call: Call) -> Answer:
    return Answer(body=call.show.whole_user(call.world.user(call.args["login"]), private=False))


@route("GET", "REPO")
def repo(call: Call) -> Answer:
    return Answer(body=call.show.whole_repo(call.repo), modified=call.repo.updated_at)


@route("PATCH", "REPO")
def edit_repo(call: Call) -> Answer:
    found = call.repo
    call.world.need_push(found, call.who())
    if name := call.given("name"):
        call.world.rename(found, name)
    found.delete_branch_on_merge = call.given("delete_branch_on_merge", found.delete_branch_on_merge)
    found.allow_auto_merge = call.given("allow_auto_merge", found.allow_auto_merge)
    return Answer(body=call.show.whole_repo(found))


@route("GET", "REPO/collaborators/{login}/permission")
def collaborator(call: Call) -> Answer:
    found, who = call.repo, call.world.user(call.args["login"])
    call.world.need_push(found, call.who())
    granted = rules.permission(found, who)
    shape = call.show.user(who) | {"permissions": call.show.permissions(found, who), "role_name": granted}
    return Answer(body={"permission": "read" if granted == "triage" else granted, "role_name": granted, "user": shape})


@route("POST", "REPO/forks")
def make_fork(call: Call) -> Answer:
    made = call.world.new_repo(call.who(), call.repo.name, parent=call.repo)
    return Answer(202, call.show.whole_repo(made))


def sha_of(found: Repo, ref: str) -> str:
    sha = found.head(ref) or bare.resolve(found.path, ref)
    if sha is None:
        raise Refused(422, f"No commit found for SHA: {ref}")
    return sha


@route("GET", "REPO/branches/{branch*}/protection/required_status_checks")
def required_checks(call: Call) -> Answer:
    kept = call.repo.protections.get(call.args["branch"])
    call.world.need_push(call.repo, call.who())
    if kept is None:
        raise Refused(404, "Branch not protected")
    if not kept.checks:
        raise Refused(404, "Required status checks not enabled")
    url = f"{call.show.repo_url(call.repo)}/branches/{call.args['branch']}/protection/required_status_checks"
    return Answer(body={
        "url": url, "strict": kept.strict, "contexts": list(kept.checks), "contexts_url": f"{url}/contexts",
        "checks": [{"context": name, "app_id": None} for name in kept.checks],
    })  # fmt: skip


@route("GET", "REPO/branches/{branch*}/protection")
def protection(call: Call) -> Answer:
    kept = call.repo.protections.get(call.args["branch"])
    call.world.need_push(call.repo, call.who())
    if kept is None:
        raise Refused(404, "Branch not protected")
    url = f"{call.show.repo_url(call.repo)}/branches/{call.args['branch']}/protection"
    body: Json = {"url": url, "enforce_admins": {"url": f"{url}/enforce_admins", "enabled": True}}
    if kept.checks:
        body["required_status_checks"] = required_checks(call).body
    if kept.approvals:
        body["required_pull_request_reviews"] = {
            "url": f"{url}/required_pull_request_reviews", "dismiss_stale_reviews": False, "require_code_owner_reviews": False,
            "required_approving_review_count": kept.approvals, "require_last_push_approval": False,
        }  # fmt: skip
    return Answer(body=body)


@route("GET", "REPO/rules/branches/{branch*}")
def branch_rules(call: Call) -> Answer | Page:
    kept, found = call.repo.protections.get(call.args["branch"]), []
    source = {"ruleset_source_type": "Repository", "ruleset_source": call.repo.full_name, "ruleset_id": 1}
    if kept and kept.checks:
        found.append(source | {"type": "required_status_checks", "parameters": {
            "strict_required_status_checks_policy": kept.strict,
            "required_status_checks": [{"context": name} for name in kept.checks],
        }})  # fmt: skip
    if kept and kept.merge_queue:
        found.append(source | {"type": "merge_queue", "parameters": {
            "check_response_timeout_minutes": 60, "grouping_strategy": "ALLGREEN", "max_entries_to_build": 1, "max_entries_to_merge": 1,
            "merge_method": "MERGE", "min_entries_to_merge": 1, "min_entries_to_merge_wait_minutes": 0,
        }})  # fmt: skip
    if kept and kept.approvals:
        found.append(source | {"type": "pull_request", "parameters": {
            "dismiss_stale_reviews_on_push": False, "require_code_owner_review": False, "require_last_push_approval": False,
            "required_approving_review_count": kept.approvals, "required_review_thread_resolution": kept.resolved,
        }})  # fmt: skip
    return Page(found, dict)


@route("GET", "REPO/branches")
def branches(call: Call) -> Page:
    found, url = call.repo, f"{call.show.repo_url(call.repo)}/commits"
    names = [ref.removeprefix("refs/heads/") for ref in sorted(found.refs) if ref.startswith("refs/heads/")]
    return Page(names, lambda name: {
        "name": name, "commit": {"sha": found.head(name), "url": f"{url}/{found.head(name)}"}, "protected": name in found.protections,
    })  # fmt: skip


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
    call.world.need_push(call.repo, call.who())
    name, sha = call.needed("ref"), bare.resolve(call.repo.path, call.needed("sha"))
    if sha is None or not name.startswith("refs/"):
        raise Refused(422, "Object does not exist")
    if name in call.repo.refs:
        raise Refused(422, "Reference already exists")
    bare.set_ref(call.repo.path, name, sha)
    pulls.refs_moved(call.world, call.repo, call.who())
    return Answer(201, call.show.ref(call.repo, name, sha))


@route("DELETE", "REPO/git/refs/{ref*}")
def delete_ref(call: Call) -> Answer:
    call.world.need_push(call.repo, call.who())
    name = f"refs/{call.args['ref']}"
    if name not in call.repo.refs:
        raise Refused(422, "Reference does not exist")
    if name.removeprefix("refs/heads/") in {call.repo.default_branch, *call.repo.protections}:
        raise Refused(422, "Cannot delete this protected ref")
    bare.delete_ref(call.repo.path, name)
    pulls.refs_moved(call.world, call.repo, call.who())
    return Answer(204)


@route("GET", "REPO/commits/{sha}")
def commit(call: Call) -> Answer:
    return Answer(body=call.show.commit(call.repo, sha_of(call.repo, call.args["sha"])))


@route("GET", "REPO/hooks")
def hooks(call: Call) -> Page:
    call.world.need_push(call.repo, call.who())
    return Page(list(call.repo.hooks.values()), call.show.hook)


@route("POST", "REPO/hooks")
def make_hook(call: Call) -> Answer:
    world, found, config = call.world, call.repo, call.given("config") or {}
    world.need_push(found, call.who())
    if call.token and not {"repo", "admin:repo_hook", "write:repo_hook"} & set(call.token.scopes):
        raise Refused(404, "Not Found")
    if not config.get("url"):
        raise invalid("Hook", "url", "url cannot be blank", "custom")
    if any(hook.url == config["url"] for hook in found.hooks.values()):
        raise Refused(422, "Validation Failed", [
            {"resource": "Hook", "code": "custom", "message": "Hook already exists on this repository"}
        ])  # fmt: skip
    made = add_hook(call, found, config)
    ping(call, made)
    return Answer(201, call.show.hook(made))


def add_hook(call: Call, found: Repo, config: Json) -> Hook:
    events = call.given("events") or ["push"]
    made = call.world.keep(Hook(
        **call.world.base("H"), repo=found, url=config["url"], secret=config.get("secret", ""), events=list(events),
        content_type=config.get("content_type", "form"), active=call.given("active", True),
    ))  # fmt: skip
    found.hooks[made.id] = made
    return made


def ping(call: Call, hook: Hook) -> None:
    show = call.world.shapes
    call.world.hooks.deliver(hook, "ping", {
        "zen": "Design for failure.", "hook_id": hook.id, "hook": show.hook(hook), "repository": show.repo(hook.repo),
        "sender": show.user(call.who()),
    })  # fmt: skip


def the_hook(call: Call) -> Hook:
    call.world.need_push(call.repo, call.who())
    found = call.repo.hooks.get(int(call.args["hook_id"]))
    if found is None:
        raise Refused(404, "Not Found")
    return found


@route("GET", "REPO/hooks/{hook_id}")
def hook(call: Call) -> Answer:
    return Answer(body=call.show.hook(the_hook(call)))


@route("PATCH", "REPO/hooks/{hook_id}")
def edit_hook(call: Call) -> Answer:
    found, config = the_hook(call), call.given("config") or {}
    found.url, found.secret = config.get("url", found.url), config.get("secret", found.secret)
    found.content_type = config.get("content_type", found.content_type)
    found.events, found.active = call.given("events", found.events), call.given("active", found.active)
    return Answer(body=call.show.hook(found))


@route("DELETE", "REPO/hooks/{hook_id}")
def delete_hook(call: Call) -> Answer:
    del call.repo.hooks[the_hook(call).id]
    return Answer(204)


@route("POST", "REPO/hooks/{hook_id}/pings")
def ping_hook(call: Call) -> Answer:
    ping(call, the_hook(call))
    return Answer(204)


@route("GET", "REPO/hooks/{hook_id}/deliveries")
def deliveries(call: Call) -> Page:
    return Page(the_hook(call).deliveries[::-1], call.show.delivery)


@route("POST", "REPO/hooks/{hook_id}/deliveries/{delivery_id}/attempts")
def redeliver(call: Call) -> Answer:
    wanted = int(call.args["delivery_id"])
    for delivery in the_hook(call).deliveries:
        if delivery.id == wanted:
            call.world.hooks.redeliver(delivery)
            return Answer(202, {})
    raise Refused(404, "Not Found")
