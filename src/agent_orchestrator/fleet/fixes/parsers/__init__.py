"""What tools say, read: failures, tests, and what a tool could not look into. One module a family of tools."""
