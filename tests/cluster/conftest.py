"""Fixtures for sessions on separate machines. They need root, for namespaces, and Ray, which `make test-cluster` installs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.engine import have_ray
from tests.cluster.fleet import LabFleet
from tests.cluster.lab import ClusterLab, missing_requirement

LABELS = {"n1": "gpu=a100,region=eu", "n2": "region=eu", "n3": "region=us"}


@pytest.fixture(scope="session", autouse=True)
def able() -> None:
    """Skip the tests if this machine cannot build a lab."""
    if lack := missing_requirement():
        pytest.skip(lack)


@pytest.fixture
def by_hand() -> Iterator[LabFleet]:
    """Two machines whose workers are started by hand."""
    with ClusterLab(2) as lab, LabFleet(lab, ray=False) as fleet:
        fleet.begin()
        yield fleet


@pytest.fixture(scope="module")
def cluster() -> Iterator[LabFleet]:
    """Three nodes of a Ray cluster; each test leaves them ready, and stops its sessions."""
    if not have_ray():
        pytest.skip("needs Ray: pip install 'agent-orchestrator[ray]'")
    with ClusterLab(3) as lab, LabFleet(lab, ray=True) as fleet:
        fleet.begin(labels=LABELS)
        yield fleet


@pytest.fixture
def fleet(cluster: LabFleet) -> Iterator[LabFleet]:
    """The cluster, for one test."""
    yield cluster
    for machine in cluster.lab.machines:
        cluster.recover(machine)
    cluster.wait_until_ready()
    cluster.box.ao("stop", "--all", "-p", "app", check=False)
