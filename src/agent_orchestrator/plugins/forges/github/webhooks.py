"""Verify GitHub's webhooks and find what is worth reading because of them. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.forges.shared.webhook_signatures import is_signed
from agent_orchestrator.protocols.forge import Hint, WebhookDelivery

_QUEUE_BRANCH = re.compile(r"(?:refs/heads/)?gh-readonly-queue/(.+)/pr-(\d{1,12})-[0-9a-f]+")
"""A branch that GitHub's merge queue made: its base branch and the number of its pull request."""
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_PULL_EVENTS = frozenset(
    {"pull_request", "pull_request_review", "pull_request_review_comment", "pull_request_review_thread"}
)
"""Events whose payload has the pull request."""


class GitHubHooks:
    """The receiver of GitHub's webhooks."""

    def verify(self, headers: Mapping[str, str], body: bytes, secrets: Sequence[str]) -> WebhookDelivery | None:
        """Return the delivery if one of the secrets signed it, otherwise None. Raise `UsageError` if it is not GitHub's."""
        lowercase_headers = {name.lower(): value for name, value in headers.items()}
        kind, delivery = (
            lowercase_headers.get("x-github-event", "").strip(),
            lowercase_headers.get("x-github-delivery", "").strip(),
        )
        if not kind or not delivery:
            raise UsageError("this is no delivery of GitHub's", "it has X-GitHub-Event and X-GitHub-Delivery")
        if not is_signed(body, lowercase_headers.get("x-hub-signature-256", ""), secrets, "sha256="):
            return None
        return WebhookDelivery(delivery[:200], kind[:100], _payload(lowercase_headers.get("content-type", ""), body))

    def hint(self, delivery: WebhookDelivery) -> Hint | None:
        """Return what is worth reading, or None. A hint that names nothing stands for all that is known of the repository."""
        payload = delivery.payload if isinstance(delivery.payload, Mapping) else {}
        repo = _text(_dict(payload.get("repository")).get("full_name"))
        if not repo:
            return None
        hint = _hint_of(delivery.kind, repo, payload)
        return hint if hint is None or _is_valid(hint) else None


def _payload(content_type: str, body: bytes) -> Mapping[str, object]:
    """Return the JSON object in a body, which may be form-encoded. Raise `UsageError` if there is none."""
    try:
        text = body.decode()
        if content_type.lower().startswith("application/x-www-form-urlencoded"):
            text = parse_qs(text, max_num_fields=10).get("payload", [""])[0]
        payload = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(
            "the delivery's body is no JSON", "choose application/json in the webhook's settings"
        ) from None
    if not isinstance(payload, dict):
        raise UsageError("the delivery's body is no JSON object")
    return payload


def _hint_of(kind: str, repo: str, payload: Mapping[str, Any]) -> Hint | None:
    """Return the hint of an event by its kind, or None if the event is of no interest."""
    if kind in _PULL_EVENTS:
        return Hint(repo, pulls=_numbers([payload.get("pull_request")]) or _number_of(payload))
    if kind in ("issue_comment", "issues"):
        issue = _dict(payload.get("issue"))
        numbers = _numbers([issue])
        if issue.get("pull_request"):
            return Hint(repo, pulls=numbers)
        return Hint(repo, issues=tuple(map(str, numbers)))
    if kind == "label":
        return Hint(repo)
    if kind in ("check_run", "check_suite", "workflow_run", "workflow_job"):
        return _hint_of_checks(kind, repo, payload)
    if kind == "status":
        return Hint(repo, heads=_shas(payload.get("sha")))
    if kind == "push":
        return _hint_of_branch(repo, payload.get("ref"), is_full_ref=True)
    if kind in ("create", "delete"):
        return (
            _hint_of_branch(repo, payload.get("ref"), is_full_ref=False)
            if payload.get("ref_type") == "branch"
            else None
        )
    if kind == "merge_group":
        return _hint_of_queue(repo, payload)
    if kind == "repository" and payload.get("action") in ("renamed", "transferred"):
        return Hint(_former_name(repo, payload))
    return None


def _hint_of_checks(kind: str, repo: str, payload: Mapping[str, Any]) -> Hint:
    """Return the pull requests and heads of an event about checks."""
    subject = _dict(payload.get(kind))
    suite = _dict(subject.get("check_suite"))
    pulls = [*_list(subject.get("pull_requests")), *_list(suite.get("pull_requests"))]
    heads = _shas(subject.get("head_sha"), suite.get("head_sha"))
    queue_branch = _QUEUE_BRANCH.fullmatch(_text(subject.get("head_branch")) or _text(suite.get("head_branch")))
    queued = (int(queue_branch[2]),) if queue_branch else ()
    return Hint(repo, pulls=tuple(dict.fromkeys([*_numbers(_own_pull_requests(pulls, payload)), *queued])), heads=heads)


def _own_pull_requests(pulls: Iterable[Any], payload: Mapping[str, Any]) -> list[Any]:
    """Return the pull requests of this repository: a commit may belong to pull requests of its forks too."""
    own_id = _dict(payload.get("repository")).get("id")
    base_repos = [(pull, _dict(_dict(_dict(pull).get("base")).get("repo")).get("id")) for pull in pulls]
    return [pull for pull, base_repo in base_repos if base_repo is None or base_repo == own_id]


def _hint_of_queue(repo: str, payload: Mapping[str, Any]) -> Hint:
    """Return the pull request, head and base branch of a merge-queue event."""
    group = _dict(payload.get("merge_group"))
    match = _QUEUE_BRANCH.fullmatch(_text(group.get("head_ref")))
    base = _text(group.get("base_ref")).removeprefix("refs/heads/")
    return Hint(
        repo,
        pulls=(int(match[2]),) if match else (),
        heads=_shas(group.get("head_sha")),
        branches=(base,) if base else (),
    )


def _hint_of_branch(repo: str, ref: Any, *, is_full_ref: bool) -> Hint | None:
    """Return the hint of a changed branch. `is_full_ref`: the reference must begin with `refs/heads/`."""
    name = _text(ref)
    if is_full_ref and not name.startswith("refs/heads/"):
        return None
    name = name.removeprefix("refs/heads/")
    return Hint(repo, branches=(name,)) if name else None


def _former_name(repo: str, payload: Mapping[str, Any]) -> str:
    """Return the name that the repository had until now. The next reading with it learns the new one."""
    changes = _dict(payload.get("changes"))
    name = _text(_dict(_dict(_dict(changes.get("repository")).get("name"))).get("from"))
    former_owner = _dict(_dict(changes.get("owner")).get("from"))
    owner = _text(_dict(former_owner.get("user")).get("login")) or _text(
        _dict(former_owner.get("organization")).get("login")
    )
    current_owner, _, current_name = repo.partition("/")
    return f"{owner or current_owner}/{name or current_name}"


def _is_valid(hint: Hint) -> bool:
    """Return whether all numbers of a hint can be stored as integers."""
    return all(0 < number < 1 << 53 for number in (*hint.pulls, *map(int, hint.issues)))


def _number_of(payload: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the payload's own number, if it has one."""
    return _numbers([payload])


def _numbers(objects: Iterable[Any]) -> tuple[int, ...]:
    """Return the positive `number` of each of these objects."""
    values = (_dict(item).get("number") for item in objects)
    return tuple(number for number in values if isinstance(number, int) and not isinstance(number, bool) and number > 0)


def _shas(*values: Any) -> tuple[str, ...]:
    """Return the values that are commit ids, each once."""
    return tuple(dict.fromkeys(value for value in map(_text, values) if _SHA.fullmatch(value)))


def _dict(value: Any) -> Mapping[str, Any]:
    """Return the value if it is an object, otherwise an empty one."""
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    """Return the value if it is a list, otherwise an empty one."""
    return value if isinstance(value, list) else ()


def _text(value: Any) -> str:
    """Return the value if it is a text, otherwise ""."""
    return value if isinstance(value, str) else ""
