"""Who is asking and whether they may: sign-in, tokens, TLS, rate limits, refusals and the audit entry of each request."""
