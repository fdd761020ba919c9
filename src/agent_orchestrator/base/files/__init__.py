"""Files: locks, access that follows no symlink, notification of changes."""
