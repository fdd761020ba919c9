"""The plugin `claude-code`: Anthropic's Claude Code."""
