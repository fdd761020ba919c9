"""What people ask for, one noun a module: made of the flow, the store and plugins. Knows nothing of HTTP or the command line."""
