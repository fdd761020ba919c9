"""Issues at Linear."""
