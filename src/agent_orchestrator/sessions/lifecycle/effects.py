"""The effects of a session's life, by kind of intent: from making its workspace to cleaning up after it."""

from __future__ import annotations

from agent_orchestrator.core.effects import Effect, retry_until_done
from agent_orchestrator.sessions.lifecycle.delivery import Deliveries
from agent_orchestrator.sessions.lifecycle.launch import Launches
from agent_orchestrator.sessions.lifecycle.reachability import retry_while_unreachable
from agent_orchestrator.sessions.lifecycle.silence import Silence
from agent_orchestrator.sessions.lifecycle.stop import Stops
from agent_orchestrator.sessions.lifecycle.workspaces import Workspaces
from agent_orchestrator.sessions.part import Core


def session_effects(
    core: Core, workspaces: Workspaces, launches: Launches, deliveries: Deliveries, stops: Stops
) -> dict[str, Effect]:
    """Return the effects that start, run and end sessions."""
    return {
        "prepare": Effect(retry_while_unreachable(core, workspaces.prepare), fatal_step="making its workspace"),
        "launch": Effect(retry_while_unreachable(core, launches.launch), fatal_step="starting its agent"),
        "deliver": Effect(deliveries.deliver, record_attempt_first=True, finish_if_started=True),
        "publish": Effect(retry_until_done(retry_while_unreachable(core, workspaces.publish))),
        "stop": Effect(retry_while_unreachable(core, stops.stop), fatal_step="stopping its agent"),
        "clean-up": Effect(retry_while_unreachable(core, stops.clean_up), fatal_step="cleaning up"),
        "silence": Effect(Silence(core).check),
    }
