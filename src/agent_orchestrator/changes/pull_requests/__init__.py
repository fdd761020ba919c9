"""Pull requests of the local forge, the branches they are between, and stacked branches."""
