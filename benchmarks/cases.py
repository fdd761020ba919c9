"""The cases by name: those of every run, and those that run only when named."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.board.dashboard import measure_dashboard
from benchmarks.changes.check_results import measure_check_results
from benchmarks.changes.conflicts import measure_conflicts, measure_conflicts_large
from benchmarks.changes.merge_queue import measure_merge_queue, measure_merge_queue_twenty
from benchmarks.daemon.scale import measure_scale
from benchmarks.daemon.scheduling import measure_scheduling
from benchmarks.daemon.storage import measure_storage
from benchmarks.forges.polls import measure_polls
from benchmarks.forges.pull_requests import measure_pull_requests
from benchmarks.forges.scale import measure_github_scale, measure_webhook_answers
from benchmarks.forges.webhooks import measure_webhooks
from benchmarks.measure import Case
from benchmarks.peers.duels import measure_peers
from benchmarks.sessions.cluster import measure_cluster
from benchmarks.sessions.containers import measure_containers
from benchmarks.sessions.reactions import measure_reactions
from benchmarks.sessions.spawn import measure_spawn
from benchmarks.sessions.status import measure_status
from benchmarks.sessions.workspaces import measure_workspaces

CASES: Mapping[str, Case] = {
    "spawn": measure_spawn,
    "status": measure_status,
    "scale": measure_scale,
    "webhooks": measure_webhooks,
    "polls": measure_polls,
    "merge-queue": measure_merge_queue,
    "conflicts": measure_conflicts,
    "workspaces": measure_workspaces,
    "peers": measure_peers,
}
"""The cases of `make bench`, in this order."""

EXTRA_CASES: Mapping[str, Case] = {
    "reactions": measure_reactions,
    "merge-queue-twenty": measure_merge_queue_twenty,
    "conflicts-large": measure_conflicts_large,
    "pull-requests": measure_pull_requests,
    "github-scale": measure_github_scale,
    "webhook-answers": measure_webhook_answers,
    "dashboard": measure_dashboard,
    "scheduling": measure_scheduling,
    "storage": measure_storage,
    "check-results": measure_check_results,
    "containers": measure_containers,
    "cluster": measure_cluster,
}
