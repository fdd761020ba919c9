"""Chat services on loopback: Slack, Discord, Composio, OpenClaw and a webhook receiver, as strict as their published rules.

    with ChatServer() as chat:
        await Slack({"webhookUrl": chat.slack}, host).notify(notification)
        assert chat.received[0].violations == []

They refuse what the real ones refuse (`rules.py`), and fail on request: `chat.fail(Fault(429, retry_after=30), Fault("hang"))`.
"""

from agent_orchestrator.testing.chat.rules import find_mentions, violations
from agent_orchestrator.testing.chat.server import ChatFault, ChatServer, ReceivedMessage

__all__ = ["ChatFault", "ChatServer", "ReceivedMessage", "find_mentions", "violations"]
