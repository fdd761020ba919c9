"""Merge requests and issues at GitLab."""
