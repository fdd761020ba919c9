"""Which cases there are: those of every run, and those that are played when they are named."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.board.dashboard import dashboard
from benchmarks.changes.check_results import results
from benchmarks.changes.conflicts import predicting, predicting_large
from benchmarks.changes.merge_queue import landing, landing_twenty
from benchmarks.daemon.scale import scaling
from benchmarks.daemon.scheduling import scheduling
from benchmarks.daemon.storage import storing
from benchmarks.forges.polls import watching
from benchmarks.forges.pull_requests import forging
from benchmarks.forges.scale import answering, growing
from benchmarks.forges.webhooks import webhooks
from benchmarks.measure import Case
from benchmarks.peers.duels import peers
from benchmarks.sessions.cluster import cluster
from benchmarks.sessions.containers import containers
from benchmarks.sessions.reactions import reaching
from benchmarks.sessions.spawn import spawning
from benchmarks.sessions.status import seeing
from benchmarks.sessions.workspaces import repositories

CASES: Mapping[str, Case] = {
    "spawning": spawning,
    "seeing": seeing,
    "scaling": scaling,
    "webhooks": webhooks,
    "watching": watching,
    "landing": landing,
    "predicting": predicting,
    "repositories": repositories,
    "peers": peers,
}
"""What `make bench` plays, in this order."""

MORE: Mapping[str, Case] = {
    "reaching": reaching,
    "landing-twenty": landing_twenty,
    "predicting-large": predicting_large,
    "forging": forging,
    "growing": growing,
    "answering": answering,
    "dashboard": dashboard,
    "scheduling": scheduling,
    "storing": storing,
    "results": results,
    "containers": containers,
    "cluster": cluster,
}
