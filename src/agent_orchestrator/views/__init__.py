"""What people and monitoring read: the board, a session's timeline, the recap, statistics, metrics, `ao doctor`.
Computed, never stored.
"""
