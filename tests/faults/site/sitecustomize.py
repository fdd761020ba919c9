"""For a daemon that the command line starts by itself: it is counted too. The scenarios put this folder on Python's path."""

import os
import sys

if os.environ.get("AO_CRASH_PLAN") and "agent_orchestrator.daemon" in sys.orig_argv:
    from tests.faults import crashing

    crashing.install_planned()
