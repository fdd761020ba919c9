"""Where pull requests, checks and reviews live."""
