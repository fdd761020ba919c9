"""`codex`: OpenAI's Codex CLI."""
