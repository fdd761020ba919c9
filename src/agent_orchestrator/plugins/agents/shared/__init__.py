"""Modules that several agent plugins share."""
