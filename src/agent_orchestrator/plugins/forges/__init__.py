"""The slots SCM and Tracker: GitHub, GitLab, Linear and Jira; `shared/` has what they share."""
