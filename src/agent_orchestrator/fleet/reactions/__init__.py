"""Reaction rules carried out: what a rule sends, spawns or runs when its trigger applies."""
