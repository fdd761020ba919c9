"""What every test gets: asyncio as the only event loop, and a home, a Git identity and a tmux of its own."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings
from hypothesis.configuration import set_hypothesis_home_dir

from agent_orchestrator.base.interpreter import without_own
from agent_orchestrator.testing import preloaded_daemon, sandbox
from agent_orchestrator.testing.fixtures import anyio_backend as anyio_backend
from agent_orchestrator.testing.fixtures import own_world as own_world

set_hypothesis_home_dir(".cache/hypothesis")
settings.register_profile(
    "same every time",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],  # of a busy machine it says nothing
)
settings.load_profile("same every time")

sandbox.launch = preloaded_daemon.launch

_environment = without_own(os.environ)  # `pytest` in an activated environment is the same as `make test`
os.environ.clear()
os.environ.update(_environment)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a shell: programs started by tests would ignore Ctrl-C too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
