"""Notifications, sent: who is told (`targets.py`), in which words (`messages.py`), with which answers (`answer_links.py`), and what came
of it (`service.py`, `health.py`). When, is decided in `fleet/notifications/rate.py`.
"""

from agent_orchestrator.fleet.notifications.answer_links import Answers
from agent_orchestrator.fleet.notifications.doctor import Trial
from agent_orchestrator.fleet.notifications.service import Notifying

__all__ = ["Answers", "Notifying", "Trial"]
