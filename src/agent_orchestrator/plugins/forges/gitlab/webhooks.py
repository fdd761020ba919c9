"""What GitLab tells by webhook: is it genuine, and what is worth reading because of it. Pure."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.forges.shared.webhook_signatures import as_bytes
from agent_orchestrator.protocols.forge import Hint, WebhookDelivery

_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF = re.compile(r"refs/merge-requests/(\d{1,12})/\w+")
_KINDS = {
    "push": "Push Hook",
    "merge_request": "Merge Request Hook",
    "note": "Note Hook",
    "issue": "Issue Hook",
    "work_item": "Issue Hook",
    "pipeline": "Pipeline Hook",
    "build": "Job Hook",
}


class GitLabHooks:
    """GitLab's webhooks, of projects, groups and whole hosts."""

    def genuine(self, headers: Mapping[str, str], body: bytes, secrets: Sequence[str]) -> WebhookDelivery | None:
        """The delivery, if it shows one of the secrets."""
        told = {name.lower(): value for name, value in headers.items()}
        kind = told.get("x-gitlab-event", "").strip()
        if not kind:
            raise UsageError("this is no delivery of GitLab's", "it has X-Gitlab-Event")
        shown = told.get("x-gitlab-token", "").encode("latin-1", "replace")  # as which headers are read
        agreed = False
        for secret in secrets:
            agreed |= hmac.compare_digest(as_bytes(secret), shown) and bool(secret)
        if not agreed:
            return None
        return WebhookDelivery(_name(told, body), kind[:100], _payload(body))

    def hint(self, delivery: WebhookDelivery) -> Hint | None:
        """What is worth reading."""
        payload = delivery.payload if isinstance(delivery.payload, Mapping) else {}
        said = str(payload.get("object_kind") or payload.get("event_name") or "")
        kind = _KINDS.get(said, delivery.kind.removeprefix("Confidential "))
        repo = _repo(payload)
        hint = _hint(kind, repo, payload) if repo else None
        return hint if hint and (hint.pulls or hint.heads or hint.branches or hint.issues) else None


def _name(told: Mapping[str, str], body: bytes) -> str:
    """The delivery's name. Hooks that one event sets off share its UUID, so that alone does not tell them apart."""
    key = told.get("idempotency-key", "").strip()
    if key:
        return key[:200]
    return f"{told.get('x-gitlab-event-uuid', '').strip()[:100]}:{hashlib.sha256(body).hexdigest()}"


def _payload(body: bytes) -> Mapping[str, object]:
    try:
        payload = json.loads(body.decode())
    except (ValueError, RecursionError):
        raise UsageError("the delivery's body is no JSON", "leave the webhook's custom template empty") from None
    if not isinstance(payload, dict):
        raise UsageError("the delivery's body is no JSON object")
    return payload


def _repo(payload: Mapping[str, Any]) -> str:
    """The project's path; of a merge request's pipeline in a fork, the one that the merge request is in."""
    about = _dict(payload.get("merge_request"))
    target = _text(_dict(about.get("target")).get("path_with_namespace")) or _path(about.get("url"))
    if target:
        return target
    project = _dict(payload.get("project"))
    named = _text(project.get("path_with_namespace"))
    return named or _path(project.get("web_url")) or _path(_dict(payload.get("repository")).get("homepage"))


def _path(address: Any) -> str:
    try:
        return urlsplit(_text(address)).path.partition("/-/")[0].strip("/")
    except ValueError:
        return ""


def _hint(kind: str, repo: str, payload: Mapping[str, Any]) -> Hint | None:
    about = _dict(payload.get("object_attributes"))
    if kind == "Merge Request Hook":
        return Hint(repo, pulls=_iid(about))
    if kind == "Note Hook":
        issue = _iid(_dict(payload.get("issue")))
        return Hint(repo, pulls=_iid(_dict(payload.get("merge_request"))), issues=tuple(map(str, issue)))
    if kind in ("Issue Hook", "Work Item Hook"):
        return Hint(repo, issues=tuple(map(str, _iid(about))))
    if kind == "Pipeline Hook":
        pulls = _iid(_dict(payload.get("merge_request"))) or _of_ref(about.get("ref"))
        return Hint(repo, pulls=pulls, heads=_sha(about.get("sha")))
    if kind == "Job Hook":
        return Hint(repo, pulls=_of_ref(payload.get("ref")), heads=_sha(payload.get("sha")))
    if kind == "Push Hook":
        ref = _text(payload.get("ref"))
        return Hint(repo, branches=(ref.removeprefix("refs/heads/"),)) if ref.startswith("refs/heads/") else None
    return None


def _iid(about: Mapping[str, Any]) -> tuple[int, ...]:
    number = about.get("iid")
    fits = isinstance(number, int) and not isinstance(number, bool) and 0 < number < 1 << 53
    return (number,) if fits and isinstance(number, int) else ()


def _of_ref(ref: Any) -> tuple[int, ...]:
    found = _REF.fullmatch(_text(ref))
    return (int(found[1]),) if found else ()


def _sha(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) and _SHA.fullmatch(value) else ()


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
