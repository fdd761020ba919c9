"""What the plugins of forges and trackers share: HTTP, request budget, webhook signatures, tokens."""
