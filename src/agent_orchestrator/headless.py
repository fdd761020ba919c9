"""Run `sessions.agents.headless`: sessions that the release before has started name this module. It goes with the next release."""

import sys

from agent_orchestrator.sessions.agents.headless import main

if __name__ == "__main__":
    sys.exit(main())
