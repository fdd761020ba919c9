"""Decide when each session starts, and which agent takes which issue."""
