"""Registered repositories: their configuration, whether it is trusted, and the plugins that it names."""
