"""A session's change on its way to the base branch: checks, pull requests, reviews, conflicts, merging, and the issues it comes from."""
