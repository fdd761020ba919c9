"""Plugins for pull requests and issues at GitHub."""
