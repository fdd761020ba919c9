"""Plugins for issues at Jira."""
