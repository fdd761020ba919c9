"""Verify GitLab's webhooks and find what is worth reading because of them. Pure."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.forges.shared.webhook_signatures import secret_bytes
from agent_orchestrator.protocols.forge import Hint, WebhookDelivery

_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF = re.compile(r"refs/merge-requests/(\d{1,12})/\w+")
"""The reference of a merge request's pipeline."""
_KINDS = {
    "push": "Push Hook",
    "merge_request": "Merge Request Hook",
    "note": "Note Hook",
    "issue": "Issue Hook",
    "work_item": "Issue Hook",
    "pipeline": "Pipeline Hook",
    "build": "Job Hook",
}
"""The event in the header by the kind in the payload."""


class GitLabHooks:
    """The receiver of GitLab's webhooks of projects, groups and instances."""

    def verify(self, headers: Mapping[str, str], body: bytes, secrets: Sequence[str]) -> WebhookDelivery | None:
        """Return the delivery if it has one of the secrets, otherwise None. Raise `UsageError` if it is not GitLab's."""
        lowercase_headers = {name.lower(): value for name, value in headers.items()}
        kind = lowercase_headers.get("x-gitlab-event", "").strip()
        if not kind:
            raise UsageError("this is no delivery of GitLab's", "it has X-Gitlab-Event")
        # headers are read as Latin-1
        sent_secret = lowercase_headers.get("x-gitlab-token", "").encode("latin-1", "replace")
        is_match = False
        for secret in secrets:
            is_match |= hmac.compare_digest(secret_bytes(secret), sent_secret) and bool(secret)
        if not is_match:
            return None
        return WebhookDelivery(_delivery_id(lowercase_headers, body), kind[:100], _payload(body))

    def hint(self, delivery: WebhookDelivery) -> Hint | None:
        """Return what is worth reading, or None."""
        payload = delivery.payload if isinstance(delivery.payload, Mapping) else {}
        payload_kind = str(payload.get("object_kind") or payload.get("event_name") or "")
        kind = _KINDS.get(payload_kind, delivery.kind.removeprefix("Confidential "))
        repo = _project_path(payload)
        hint = _hint_of(kind, repo, payload) if repo else None
        return hint if hint and (hint.pulls or hint.heads or hint.branches or hint.issues) else None


def _delivery_id(headers: Mapping[str, str], body: bytes) -> str:
    """Return the id of a delivery.

    The webhooks that one event triggers share its UUID, so the UUID is combined with a hash of the body.
    """
    key = headers.get("idempotency-key", "").strip()
    if key:
        return key[:200]
    return f"{headers.get('x-gitlab-event-uuid', '').strip()[:100]}:{hashlib.sha256(body).hexdigest()}"


def _payload(body: bytes) -> Mapping[str, object]:
    """Return the JSON object in a body, or raise `UsageError`."""
    try:
        payload = json.loads(body.decode())
    except (ValueError, RecursionError):
        raise UsageError("the delivery's body is no JSON", "leave the webhook's custom template empty") from None
    if not isinstance(payload, dict):
        raise UsageError("the delivery's body is no JSON object")
    return payload


def _project_path(payload: Mapping[str, Any]) -> str:
    """Return the project's path; for the pipeline of a merge request from a fork, that of the merge request's project."""
    merge_request = _dict(payload.get("merge_request"))
    target = _text(_dict(merge_request.get("target")).get("path_with_namespace")) or _path_of_url(
        merge_request.get("url")
    )
    if target:
        return target
    project = _dict(payload.get("project"))
    path = _text(project.get("path_with_namespace"))
    return (
        path or _path_of_url(project.get("web_url")) or _path_of_url(_dict(payload.get("repository")).get("homepage"))
    )


def _path_of_url(url: Any) -> str:
    """Return the path of the project in a URL, or ""."""
    try:
        return urlsplit(_text(url)).path.partition("/-/")[0].strip("/")
    except ValueError:
        return ""


def _hint_of(kind: str, repo: str, payload: Mapping[str, Any]) -> Hint | None:
    """Return the hint of an event by its kind, or None if the event is of no interest."""
    attributes = _dict(payload.get("object_attributes"))
    if kind == "Merge Request Hook":
        return Hint(repo, pulls=_iid(attributes))
    if kind == "Note Hook":
        issue = _iid(_dict(payload.get("issue")))
        return Hint(repo, pulls=_iid(_dict(payload.get("merge_request"))), issues=tuple(map(str, issue)))
    if kind in ("Issue Hook", "Work Item Hook"):
        return Hint(repo, issues=tuple(map(str, _iid(attributes))))
    if kind == "Pipeline Hook":
        pulls = _iid(_dict(payload.get("merge_request"))) or _number_of_ref(attributes.get("ref"))
        return Hint(repo, pulls=pulls, heads=_sha(attributes.get("sha")))
    if kind == "Job Hook":
        return Hint(repo, pulls=_number_of_ref(payload.get("ref")), heads=_sha(payload.get("sha")))
    if kind == "Push Hook":
        ref = _text(payload.get("ref"))
        return Hint(repo, branches=(ref.removeprefix("refs/heads/"),)) if ref.startswith("refs/heads/") else None
    return None


def _iid(attributes: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the number of a merge request or issue, if there is one."""
    number = attributes.get("iid")
    is_number = isinstance(number, int) and not isinstance(number, bool) and 0 < number < 1 << 53
    return (number,) if is_number and isinstance(number, int) else ()


def _number_of_ref(ref: Any) -> tuple[int, ...]:
    """Return the number of the merge request that a pipeline's reference belongs to."""
    match = _REF.fullmatch(_text(ref))
    return (int(match[1]),) if match else ()


def _sha(value: Any) -> tuple[str, ...]:
    """Return a commit id, if it is one."""
    return (value,) if isinstance(value, str) and _SHA.fullmatch(value) else ()


def _dict(value: Any) -> Mapping[str, Any]:
    """Return the value if it is an object, otherwise an empty one."""
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    """Return the value if it is a text, otherwise ""."""
    return value if isinstance(value, str) else ""
