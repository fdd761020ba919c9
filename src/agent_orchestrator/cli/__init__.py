"""The commands: one module per group, each loaded only when one of its commands runs.

A command asks the daemon through `client/daemon_client.py` and shows the answer. No module of the daemon may be imported here, nor
anything that takes long to import. `app.py` says which command is in which module.
"""

from agent_orchestrator.cli.app import main

__all__ = ["main"]
