"""Which session starts when, and which agent takes which issue."""
