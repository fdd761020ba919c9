"""Pull requests and issues at GitHub."""
