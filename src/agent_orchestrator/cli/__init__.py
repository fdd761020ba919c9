"""The commands: one file a group, each loaded only when one of its commands runs.

Nothing here decides anything: a command asks the daemon through `client.py` and shows the answer. No module of the daemon
may be imported here, nor anything that takes long to import; `app.py` says which command lives where.
"""

from agent_orchestrator.cli.app import main

__all__ = ["main"]
