"""Homes that earlier versions left, and damaged ones."""
