"""Run `sessions.permissions.hook`: sessions that the release before has started name this module. It goes with the next release."""

from agent_orchestrator.sessions.permissions.hook import main

if __name__ == "__main__":
    main()
