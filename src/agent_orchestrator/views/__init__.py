"""What people and monitoring read: the board, a session's timeline, the recap, statistics, metrics, the doctor. Derived, never stored."""
