"""Carries out reaction rules: what a rule sends, spawns or runs when its trigger applies."""
