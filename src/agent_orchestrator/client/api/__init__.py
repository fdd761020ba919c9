"""Agent Orchestrator from Python: `from agent_orchestrator import Orchestrator, SessionManager, Task` (docs/python.md)."""
