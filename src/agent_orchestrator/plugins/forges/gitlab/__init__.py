"""Plugins for merge requests and issues at GitLab."""
