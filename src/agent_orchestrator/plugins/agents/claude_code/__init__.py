"""`claude-code`: Anthropic's Claude Code."""
