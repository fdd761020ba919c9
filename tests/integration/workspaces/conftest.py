"""What the tests of this folder share."""

from tests.integration.workspaces.disks import sharing_disk, small_disk

__all__ = ["sharing_disk", "small_disk"]
