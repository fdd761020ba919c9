"""Agent Orchestrator: a fleet of coding agents, each in its own Git worktree, on its own branch, its work never lost."""

__version__ = "0.1.0"
