"""Fixtures of all tests: asyncio as the only event loop, and a private home, Git identity and tmux."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.configuration import set_hypothesis_home_dir

from agent_orchestrator.base.interpreter import without_own_interpreter
from agent_orchestrator.testing import preloaded, sandbox
from agent_orchestrator.testing.fixtures import anyio_backend as anyio_backend
from agent_orchestrator.testing.fixtures import own_world as own_world
from tests.order import spread_over_workers

set_hypothesis_home_dir(".cache/hypothesis")
settings.register_profile(
    "random",  # other examples in each run, but in CI; a failure comes with the decorator that repeats it
    max_examples=int(os.environ.get("AO_EXAMPLES", "20")),
    derandomize=bool(os.environ.get("CI")),
    database=None,
    deadline=None,
    print_blob=True,
    # They say something about the machine, or about one seed.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
settings.load_profile("random")

sandbox.launch = preloaded.launch
sandbox.run_command = preloaded.run_command

_environment = without_own_interpreter(os.environ)  # `pytest` in an activated environment is the same as `make test`
os.environ.clear()
os.environ.update(_environment)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a shell: programs started by tests would ignore Ctrl-C too.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempt the collected tests from garbage collection: traversing them again and again took a fifth of the workers' time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let long tests begin first, on all workers."""
    items[:] = spread_over_workers(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
