"""Notifications: which notifiers (`targets.py`), the text (`notification_text.py`), links that answer
(`answer_links.py`), sending (`sender.py`).

`rate_limit.py` and `quiet_hours.py` decide when, `receiver_health.py` which notifiers fail, `notifier_test.py` tries them, `all_done.py`
reports that every session of a project has finished.
"""

from agent_orchestrator.fleet.notifications.answer_links import AnswerLinks
from agent_orchestrator.fleet.notifications.notifier_test import NotifierTest
from agent_orchestrator.fleet.notifications.sender import NotificationSender

__all__ = ["AnswerLinks", "NotificationSender", "NotifierTest"]
