"""What every plugin is: one class for one slot, constructed from its configuration and the machine it acts on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent_orchestrator.protocols.agent import Agent
from agent_orchestrator.protocols.forge import SCM, Tracker
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.protocols.notifier import Notifier
from agent_orchestrator.protocols.runtime import Runtime
from agent_orchestrator.protocols.terminal import Terminal
from agent_orchestrator.protocols.workspace import Workspace

Plugin = Workspace | Runtime | Agent | Tracker | SCM | Notifier | Terminal


PluginFactory = Callable[[Mapping[str, Any], Host], Plugin]
