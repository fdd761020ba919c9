"""Notifications: which notifiers (`targets.py`), the text (`messages.py`), links that answer (`answer_links.py`), sending (`service.py`).

`rate.py` and `quiet_hours.py` decide when, `health.py` which notifiers fail, `doctor.py` tries them, `all_done.py` reports that every
session of a project has finished.
"""

from agent_orchestrator.fleet.notifications.answer_links import AnswerLinks
from agent_orchestrator.fleet.notifications.doctor import NotifierTest
from agent_orchestrator.fleet.notifications.service import NotificationSender

__all__ = ["AnswerLinks", "NotificationSender", "NotifierTest"]
