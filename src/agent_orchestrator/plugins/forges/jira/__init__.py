"""Issues at Jira."""
