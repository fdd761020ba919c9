"""Runs `sessions.agents.headless`: sessions started by the release before name this module for an agent without a terminal. To be removed in the next release."""

import sys

from agent_orchestrator.sessions.agents.headless import main

if __name__ == "__main__":
    sys.exit(main())
