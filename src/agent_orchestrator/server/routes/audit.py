"""Routes for the audit log: read it, and verify that it was not changed."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated

from fastapi import Query, Response

from agent_orchestrator.base.hash_chain import ChainHead
from agent_orchestrator.core.events import epoch_seconds
from agent_orchestrator.core.outbox import LogEntryFilter
from agent_orchestrator.errors import UsageError
from agent_orchestrator.server.dependencies import TheServices, admins_only
from agent_orchestrator.server.schema.openapi import as_json, responds_with, router_for

router = router_for("audit", "/api/audit", dependencies=[admins_only])

_MAX_SEQUENCE = 2**62
When = Annotated[datetime | None, Query(description="RFC 3339, or a day.")]


@router.get("", responses=responds_with("AuditLog"))
async def list_audit(
    services: TheServices,
    after: Annotated[int | None, Query(ge=0, le=_MAX_SEQUENCE, description="Only entries after this one.")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    session: Annotated[str | None, Query(description="Only this session's.")] = None,
    project: Annotated[str | None, Query(description="Only this project's.")] = None,
    actor: Annotated[
        str | None, Query(description="Only of this actor; one word means all of its kind: `rule`, `agent`, `token`.")
    ] = None,
    kind: Annotated[str | None, Query(alias="type", description="Only of this type.")] = None,
    since: When = None,
    until: When = None,
) -> Response:
    """Entries of the audit log, the newest ones unless `after` is given; oldest first. Administrators only.

    The log is the event log; `actor` is who acted, `cause` the event that it was done because of, `digest` covers the entry and the
    digest before it."""
    if session is not None:
        session = services.sessions.find(session, None).id
    times = [epoch_seconds(bound.isoformat()) if bound else None for bound in (since, until)]
    filters = LogEntryFilter(session, project, actor, kind, *times)
    return as_json({"entries": await services.audit.page(filters, after, limit)})


@router.get("/head", responses=responds_with("AuditHead"))
async def get_audit_head(services: TheServices) -> Response:
    """Return the last entry's number and digest, to be kept elsewhere. Administrators only."""
    head = await services.audit.head()
    return as_json({"seq": head.seq, "digest": head.digest})


@router.get("/verify", responses=responds_with("AuditVerdict"))
async def verify_audit(
    services: TheServices,
    kept: Annotated[
        str | None, Query(description="An entry that was kept elsewhere, `SEQ:DIGEST`, and must still be there.")
    ] = None,
) -> Response:
    """Follow the chain of digests through the whole log; says at which entry it breaks. Administrators only."""
    return as_json(await services.audit.verify(_parse_head(kept) if kept else None))


def _parse_head(text: str) -> ChainHead:
    """Parse an entry that was kept elsewhere, `SEQ:DIGEST`; raise UsageError if it is none."""
    if not re.fullmatch(r"[0-9]{1,18}:([0-9a-f]{64})?", text):
        raise UsageError(f"{text[:100]} is no entry that was kept", "give SEQ:DIGEST as `ao audit --head` prints it")
    seq, _, digest = text.partition(":")
    return ChainHead(int(seq), digest)
