"""REST: users, repositories, branches and refs, commits, rate limits, hooks."""

from __future__ import annotations

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.forge.http import ForgeAnswer
from agent_orchestrator.testing.github import pulls, rules
from agent_orchestrator.testing.github.calls import GitHubCall, GitHubPage, route
from agent_orchestrator.testing.github.shapes import Json
from agent_orchestrator.testing.github.state import GitHubRateLimit, GitHubWebhook, Repo
from agent_orchestrator.testing.github.world import GitHubRefused, validation_error


@route("GET", "/")
def root(call: GitHubCall) -> ForgeAnswer:
    api = call.shapes.api
    return ForgeAnswer(body={"current_user_url": f"{api}/user", "rate_limit_url": f"{api}/rate_limit"})


@route("GET", "/meta")
def meta(call: GitHubCall) -> ForgeAnswer:
    del call
    return ForgeAnswer(body={"verifiable_password_authentication": False, "installed_version": "3.19.0"})


@route("GET", "/rate_limit")
def rate_limit(call: GitHubCall) -> ForgeAnswer:
    limits = call.token.limits if call.token else {}
    core, graphql = (limits.get(name, GitHubRateLimit(reset=call.world.clock() + 3600)) for name in ("core", "graphql"))
    return ForgeAnswer(body={
        "resources": {"core": _limit(core), "graphql": _limit(graphql),
        "search": _limit(GitHubRateLimit(30, reset=call.world.clock() + 60))},
        "rate": _limit(core),
    })  # fmt: skip


def _limit(limit: GitHubRateLimit) -> Json:
    return {"limit": limit.limit, "used": limit.used, "remaining": limit.remaining, "reset": int(limit.reset)}


@route("GET", "/user")
def user(call: GitHubCall) -> ForgeAnswer:
    return ForgeAnswer(body=call.shapes.whole_user(call.require_user(), private=True))


@route("GET", "/users/{login}")
def get_user(call: GitHubCall) -> ForgeAnswer:
    return ForgeAnswer(body=call.shapes.whole_user(call.world.user(call.args["login"]), private=False))


@route("GET", "REPO")
def repo(call: GitHubCall) -> ForgeAnswer:
    return ForgeAnswer(body=call.shapes.whole_repo(call.repo), last_modified=call.repo.updated_at)


@route("PATCH", "REPO")
def edit_repo(call: GitHubCall) -> ForgeAnswer:
    repository = call.repo
    call.world.require_push(repository, call.require_user())
    if name := call.parameter("name"):
        call.world.rename(repository, name)
    repository.delete_branch_on_merge = call.parameter("delete_branch_on_merge", repository.delete_branch_on_merge)
    repository.allow_auto_merge = call.parameter("allow_auto_merge", repository.allow_auto_merge)
    return ForgeAnswer(body=call.shapes.whole_repo(repository))


@route("GET", "REPO/collaborators/{login}/permission")
def collaborator(call: GitHubCall) -> ForgeAnswer:
    repository, person = call.repo, call.world.user(call.args["login"])
    call.world.require_push(repository, call.require_user())
    granted = rules.permission(repository, person)
    shape = call.shapes.user(person) | {
        "permissions": call.shapes.permissions(repository, person),
        "role_name": granted,
    }
    return ForgeAnswer(
        body={"permission": "read" if granted == "triage" else granted, "role_name": granted, "user": shape}
    )


@route("POST", "REPO/forks")
def make_fork(call: GitHubCall) -> ForgeAnswer:
    created = call.world.new_repo(call.require_user(), call.repo.name, parent=call.repo)
    return ForgeAnswer(202, call.shapes.whole_repo(created))


def sha_of(repository: Repo, ref: str) -> str:
    sha = repository.head(ref) or bare_repository.resolve(repository.path, ref)
    if sha is None:
        raise GitHubRefused(422, f"No commit found for SHA: {ref}")
    return sha


@route("GET", "REPO/branches/{branch*}/protection/required_status_checks")
def required_checks(call: GitHubCall) -> ForgeAnswer:
    protection_record = call.repo.protections.get(call.args["branch"])
    call.world.require_push(call.repo, call.require_user())
    if protection_record is None:
        raise GitHubRefused(404, "Branch not protected")
    if not protection_record.checks:
        raise GitHubRefused(404, "Required status checks not enabled")
    url = f"{call.shapes.repo_url(call.repo)}/branches/{call.args['branch']}/protection/required_status_checks"
    return ForgeAnswer(body={
        "url": url, "strict": protection_record.strict, "contexts": list(protection_record.checks), "contexts_url": f"{url}/contexts",
        "checks": [{"context": name, "app_id": None} for name in protection_record.checks],
    })  # fmt: skip


@route("GET", "REPO/branches/{branch*}/protection")
def protection(call: GitHubCall) -> ForgeAnswer:
    protection_record = call.repo.protections.get(call.args["branch"])
    call.world.require_push(call.repo, call.require_user())
    if protection_record is None:
        raise GitHubRefused(404, "Branch not protected")
    url = f"{call.shapes.repo_url(call.repo)}/branches/{call.args['branch']}/protection"
    body: Json = {"url": url, "enforce_admins": {"url": f"{url}/enforce_admins", "enabled": True}}
    if protection_record.checks:
        body["required_status_checks"] = required_checks(call).body
    if protection_record.approvals:
        body["required_pull_request_reviews"] = {
            "url": f"{url}/required_pull_request_reviews", "dismiss_stale_reviews": False, "require_code_owner_reviews": False,
            "required_approving_review_count": protection_record.approvals, "require_last_push_approval": False,
        }  # fmt: skip
    return ForgeAnswer(body=body)


@route("GET", "REPO/rules/branches/{branch*}")
def branch_rules(call: GitHubCall) -> ForgeAnswer | GitHubPage:
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
    return GitHubPage(rule_list, dict)


@route("GET", "REPO/branches")
def branches(call: GitHubCall) -> GitHubPage:
    repository, url = call.repo, f"{call.shapes.repo_url(call.repo)}/commits"
    names = [ref.removeprefix("refs/heads/") for ref in sorted(repository.refs) if ref.startswith("refs/heads/")]
    return GitHubPage(
        names,
        lambda name: {
            "name": name,
            "commit": {"sha": repository.head(name), "url": f"{url}/{repository.head(name)}"},
            "protected": name in repository.protections,
        },
    )


@route("GET", "REPO/branches/{branch*}")
def branch(call: GitHubCall) -> ForgeAnswer:
    sha = call.repo.head(call.args["branch"])
    if sha is None:
        raise GitHubRefused(404, "Branch not found")
    return ForgeAnswer(body=call.shapes.branch(call.repo, call.args["branch"], sha))


@route("GET", "REPO/git/ref/{ref*}")
def ref(call: GitHubCall) -> ForgeAnswer:
    name = f"refs/{call.args['ref']}"
    if name not in call.repo.refs:
        raise GitHubRefused(404, "Not Found")
    return ForgeAnswer(body=call.shapes.ref(call.repo, name, call.repo.refs[name]))


@route("POST", "REPO/git/refs")
def make_ref(call: GitHubCall) -> ForgeAnswer:
    call.world.require_push(call.repo, call.require_user())
    name, sha = call.required_parameter("ref"), bare_repository.resolve(call.repo.path, call.required_parameter("sha"))
    if sha is None or not name.startswith("refs/"):
        raise GitHubRefused(422, "Object does not exist")
    if name in call.repo.refs:
        raise GitHubRefused(422, "Reference already exists")
    bare_repository.set_ref(call.repo.path, name, sha)
    pulls.process_ref_changes(call.world, call.repo, call.require_user())
    return ForgeAnswer(201, call.shapes.ref(call.repo, name, sha))


@route("DELETE", "REPO/git/refs/{ref*}")
def delete_ref(call: GitHubCall) -> ForgeAnswer:
    call.world.require_push(call.repo, call.require_user())
    name = f"refs/{call.args['ref']}"
    if name not in call.repo.refs:
        raise GitHubRefused(422, "Reference does not exist")
    if name.removeprefix("refs/heads/") in {call.repo.default_branch, *call.repo.protections}:
        raise GitHubRefused(422, "Cannot delete this protected ref")
    bare_repository.delete_ref(call.repo.path, name)
    pulls.process_ref_changes(call.world, call.repo, call.require_user())
    return ForgeAnswer(204)


@route("GET", "REPO/commits/{sha}")
def commit(call: GitHubCall) -> ForgeAnswer:
    return ForgeAnswer(body=call.shapes.commit(call.repo, sha_of(call.repo, call.args["sha"])))


@route("GET", "REPO/hooks")
def hooks(call: GitHubCall) -> GitHubPage:
    call.world.require_push(call.repo, call.require_user())
    return GitHubPage(list(call.repo.hooks.values()), call.shapes.hook)


@route("POST", "REPO/hooks")
def make_hook(call: GitHubCall) -> ForgeAnswer:
    world, repository, config = call.world, call.repo, call.parameter("config") or {}
    world.require_push(repository, call.require_user())
    if call.token and not {"repo", "admin:repo_hook", "write:repo_hook"} & set(call.token.scopes):
        raise GitHubRefused(404, "Not Found")
    if not config.get("url"):
        raise validation_error("Hook", "url", "url cannot be blank", "custom")
    if any(hook.url == config["url"] for hook in repository.hooks.values()):
        raise GitHubRefused(422, "Validation Failed", [
            {"resource": "Hook", "code": "custom", "message": "Hook already exists on this repository"}
        ])  # fmt: skip
    created = add_hook(call, repository, config)
    ping(call, created)
    return ForgeAnswer(201, call.shapes.hook(created))


def add_hook(call: GitHubCall, repository: Repo, config: Json) -> GitHubWebhook:
    events = call.parameter("events") or ["push"]
    created = call.world.add_record(GitHubWebhook(
        **call.world.record_fields("H"), repo=repository, url=config["url"], secret=config.get("secret", ""), events=list(events),
        content_type=config.get("content_type", "form"), active=call.parameter("active", True),
    ))  # fmt: skip
    repository.hooks[created.id] = created
    return created


def ping(call: GitHubCall, hook: GitHubWebhook) -> None:
    show = call.world.shapes
    call.world.hooks.deliver(hook, "ping", {
        "zen": "Design for failure.", "hook_id": hook.id, "hook": show.hook(hook), "repository": show.repo(hook.repo),
        "sender": show.user(call.require_user()),
    })  # fmt: skip


def find_hook(call: GitHubCall) -> GitHubWebhook:
    call.world.require_push(call.repo, call.require_user())
    hook_record = call.repo.hooks.get(int(call.args["hook_id"]))
    if hook_record is None:
        raise GitHubRefused(404, "Not Found")
    return hook_record


@route("GET", "REPO/hooks/{hook_id}")
def hook(call: GitHubCall) -> ForgeAnswer:
    return ForgeAnswer(body=call.shapes.hook(find_hook(call)))


@route("PATCH", "REPO/hooks/{hook_id}")
def edit_hook(call: GitHubCall) -> ForgeAnswer:
    hook_record, config = find_hook(call), call.parameter("config") or {}
    hook_record.url, hook_record.secret = config.get("url", hook_record.url), config.get("secret", hook_record.secret)
    hook_record.content_type = config.get("content_type", hook_record.content_type)
    hook_record.events, hook_record.active = (
        call.parameter("events", hook_record.events),
        call.parameter("active", hook_record.active),
    )
    return ForgeAnswer(body=call.shapes.hook(hook_record))


@route("DELETE", "REPO/hooks/{hook_id}")
def delete_hook(call: GitHubCall) -> ForgeAnswer:
    del call.repo.hooks[find_hook(call).id]
    return ForgeAnswer(204)


@route("POST", "REPO/hooks/{hook_id}/pings")
def ping_hook(call: GitHubCall) -> ForgeAnswer:
    ping(call, find_hook(call))
    return ForgeAnswer(204)


@route("GET", "REPO/hooks/{hook_id}/deliveries")
def deliveries(call: GitHubCall) -> GitHubPage:
    return GitHubPage(find_hook(call).deliveries[::-1], call.shapes.delivery)


@route("POST", "REPO/hooks/{hook_id}/deliveries/{delivery_id}/attempts")
def redeliver(call: GitHubCall) -> ForgeAnswer:
    delivery_id = int(call.args["delivery_id"])
    for delivery in find_hook(call).deliveries:
        if delivery.id == delivery_id:
            call.world.hooks.redeliver(delivery)
            return ForgeAnswer(202, {})
    raise GitHubRefused(404, "Not Found")
