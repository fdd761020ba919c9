"""Runs django commands."""
