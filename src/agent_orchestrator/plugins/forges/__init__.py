"""Plugins of the slots SCM and tracker: GitHub, GitLab, Linear and Jira. `shared/` has the code that they share."""
