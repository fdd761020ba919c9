"""`python -m agent_orchestrator` is `ao`."""

from __future__ import annotations

import sys

from agent_orchestrator.cli import main

sys.exit(main())
