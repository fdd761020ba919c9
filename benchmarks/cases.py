"""Which cases there are: those of every run, and those that are played when they are named."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.cluster import cluster
from benchmarks.collisions import predicting, predicting_large
from benchmarks.containers import containers
from benchmarks.dashboard import dashboard
from benchmarks.forging import forging
from benchmarks.growing import answering, growing
from benchmarks.hooks import webhooks
from benchmarks.measure import Case
from benchmarks.peers.running import peers
from benchmarks.queueing import landing, landing_twenty
from benchmarks.reaching import reaching
from benchmarks.repositories import repositories
from benchmarks.results import results
from benchmarks.scaling import scaling
from benchmarks.scheduling import scheduling
from benchmarks.seeing import seeing
from benchmarks.spawning import spawning
from benchmarks.storing import storing
from benchmarks.watching import watching

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
