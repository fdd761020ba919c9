"""Plugins for issues at Linear."""
