"""Cases about forges: requests to GitHub, webhooks, and how both grow with the number of sessions."""
