"""The JSON that comes in and goes out, as OpenAPI describes it, and the documents generated from it."""
