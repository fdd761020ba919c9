"""Signals between the parts of the cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeStateChanged:
    """A node came or went, or is drained or used again."""
