"""Fixtures for tests of workspaces."""

from tests.integration.workspaces.disks import sharing_disk, small_disk

__all__ = ["sharing_disk", "small_disk"]
