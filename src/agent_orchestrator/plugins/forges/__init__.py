"""What the plugins of forges and trackers share: one HTTP client and one budget for each host and token, tokens, webhooks."""
