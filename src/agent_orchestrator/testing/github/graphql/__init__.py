"""GraphQL of the GitHub test server."""
