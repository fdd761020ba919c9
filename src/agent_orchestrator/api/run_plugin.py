"""Runs `client.api.run_plugin`: sessions started by the release before name this module for an agent plugin's program. To be removed in the next release."""

import sys

from agent_orchestrator.client.api.run_plugin import main

if __name__ == "__main__":
    sys.exit(main())
