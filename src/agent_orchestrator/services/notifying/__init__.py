"""Notifications, sent: who is told (`targets.py`), in which words (`messages.py`), with which answers (`answers.py`), and what came
of it (`service.py`, `health.py`). When, is decided in `flow/pacing.py`.
"""

from agent_orchestrator.services.notifying.answers import Answers
from agent_orchestrator.services.notifying.service import Notifying
from agent_orchestrator.services.notifying.trial import Trial

__all__ = ["Answers", "Notifying", "Trial"]
