"""Tokens, dollars, budgets and the usage limits of accounts."""
