"""What the plugins of coding agents share."""
