"""Runs `sessions.permissions.hook`: sessions started by the release before name this module for the hook of an agent. To be removed in the next release."""

from agent_orchestrator.sessions.permissions.hook import main

if __name__ == "__main__":
    main()
