"""Run `client.api.run_plugin`: sessions that the release before has started name this module. It goes with the next release."""

import sys

from agent_orchestrator.client.api.run_plugin import main

if __name__ == "__main__":
    sys.exit(main())
