"""Shared parts of the test forges: HTTP, Git, the log of requests, and webhooks."""
