"""Code that the plugins of forges and trackers share: HTTP, rate limits, refusals, tokens, webhook signatures."""
