"""The plugin `codex`: OpenAI's Codex CLI."""
