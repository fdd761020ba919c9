"""The commands: one module per group, each imported only when one of its commands runs.

A command calls the daemon through `client/daemon_client.py` and prints the answer. Modules of the daemon and slow
imports are not allowed here. `app.py` has the table of commands and their modules.
"""

from agent_orchestrator.cli.app import main

__all__ = ["main"]
