"""What the tests of this folder share."""

from tests.integration.workspaces.disks import small_disk

__all__ = ["small_disk"]
