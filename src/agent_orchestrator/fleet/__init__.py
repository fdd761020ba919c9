"""What concerns all sessions together: scheduling, reactions, usage, plans, fixes, notifications, the coordinating agent."""
