"""Pull requests of the local forge, the branches that they are about, and stacked branches."""
