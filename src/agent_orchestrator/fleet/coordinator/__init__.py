"""The coordinating agent of a project and the digests that it is sent."""
