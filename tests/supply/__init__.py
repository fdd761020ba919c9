"""Tests of dependencies and of the contents of releases."""
