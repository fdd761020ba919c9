"""What GitHub tells by webhook: is it genuine, and what is worth reading because of it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.forges.shared.webhook_signatures import is_signed
from agent_orchestrator.protocols.forge import Hint, WebhookDelivery

_QUEUED = re.compile(r"(?:refs/heads/)?gh-readonly-queue/(.+)/pr-(\d{1,12})-[0-9a-f]+")
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_OF_PULL = frozenset(
    {"pull_request", "pull_request_review", "pull_request_review_comment", "pull_request_review_thread"}
)


class GitHubHooks:
    """GitHub's webhooks."""

    def genuine(self, headers: Mapping[str, str], body: bytes, secrets: Sequence[str]) -> WebhookDelivery | None:
        """The delivery, if one of the secrets signed it."""
        told = {name.lower(): value for name, value in headers.items()}
        kind, delivery = told.get("x-github-event", "").strip(), told.get("x-github-delivery", "").strip()
        if not kind or not delivery:
            raise UsageError("this is no delivery of GitHub's", "it has X-GitHub-Event and X-GitHub-Delivery")
        if not is_signed(body, told.get("x-hub-signature-256", ""), secrets, "sha256="):
            return None
        return WebhookDelivery(delivery[:200], kind[:100], _payload(told.get("content-type", ""), body))

    def hint(self, delivery: WebhookDelivery) -> Hint | None:
        """What is worth reading; a hint of nothing in particular means all that is known of the repository."""
        payload = delivery.payload if isinstance(delivery.payload, Mapping) else {}
        repo = _text(_dict(payload.get("repository")).get("full_name"))
        if not repo:
            return None
        hint = _hint(delivery.kind, repo, payload)
        return hint if hint is None or _valid(hint) else None


def _payload(content_type: str, body: bytes) -> Mapping[str, object]:
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


def _hint(kind: str, repo: str, payload: Mapping[str, Any]) -> Hint | None:
    if kind in _OF_PULL:
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
        return _of_checks(kind, repo, payload)
    if kind == "status":
        return Hint(repo, heads=_shas(payload.get("sha")))
    if kind == "push":
        return _branch(repo, payload.get("ref"), full=True)
    if kind in ("create", "delete"):
        return _branch(repo, payload.get("ref"), full=False) if payload.get("ref_type") == "branch" else None
    if kind == "merge_group":
        return _of_queue(repo, payload)
    if kind == "repository" and payload.get("action") in ("renamed", "transferred"):
        return Hint(_former(repo, payload))
    return None


def _of_checks(kind: str, repo: str, payload: Mapping[str, Any]) -> Hint:
    subject = _dict(payload.get(kind))
    suite = _dict(subject.get("check_suite"))
    pulls = [*_list(subject.get("pull_requests")), *_list(suite.get("pull_requests"))]
    heads = _shas(subject.get("head_sha"), suite.get("head_sha"))
    group = _QUEUED.fullmatch(_text(subject.get("head_branch")) or _text(suite.get("head_branch")))
    own = (int(group[2]),) if group else ()
    return Hint(repo, pulls=tuple(dict.fromkeys([*_numbers(_here(pulls, payload)), *own])), heads=heads)


def _here(pulls: Iterable[Any], payload: Mapping[str, Any]) -> list[Any]:
    """Those of this repository: a commit may belong to pull requests of its forks too."""
    own = _dict(payload.get("repository")).get("id")
    repos = [(pull, _dict(_dict(_dict(pull).get("base")).get("repo")).get("id")) for pull in pulls]
    return [pull for pull, repo in repos if repo is None or repo == own]


def _of_queue(repo: str, payload: Mapping[str, Any]) -> Hint:
    group = _dict(payload.get("merge_group"))
    found = _QUEUED.fullmatch(_text(group.get("head_ref")))
    base = _text(group.get("base_ref")).removeprefix("refs/heads/")
    return Hint(
        repo,
        pulls=(int(found[2]),) if found else (),
        heads=_shas(group.get("head_sha")),
        branches=(base,) if base else (),
    )


def _branch(repo: str, ref: Any, *, full: bool) -> Hint | None:
    name = _text(ref)
    if full and not name.startswith("refs/heads/"):
        return None
    name = name.removeprefix("refs/heads/")
    return Hint(repo, branches=(name,)) if name else None


def _former(repo: str, payload: Mapping[str, Any]) -> str:
    """The name that the repository was known by until now: the first reading learns the new one."""
    changes = _dict(payload.get("changes"))
    name = _text(_dict(_dict(_dict(changes.get("repository")).get("name"))).get("from"))
    before = _dict(_dict(changes.get("owner")).get("from"))
    owner = _text(_dict(before.get("user")).get("login")) or _text(_dict(before.get("organization")).get("login"))
    own, _, last = repo.partition("/")
    return f"{owner or own}/{name or last}"


def _valid(hint: Hint) -> bool:
    return all(0 < number < 1 << 53 for number in (*hint.pulls, *map(int, hint.issues)))


def _number_of(payload: Mapping[str, Any]) -> tuple[int, ...]:
    return _numbers([payload])


def _numbers(things: Iterable[Any]) -> tuple[int, ...]:
    found = (_dict(thing).get("number") for thing in things)
    return tuple(number for number in found if isinstance(number, int) and not isinstance(number, bool) and number > 0)


def _shas(*values: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for value in map(_text, values) if _SHA.fullmatch(value)))


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
