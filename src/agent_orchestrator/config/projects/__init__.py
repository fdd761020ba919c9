"""Registered repositories: their configuration, whether it is trusted, and which plugins it names."""
