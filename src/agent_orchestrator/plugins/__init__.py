"""The plugins that come with the product: one folder per slot, one module or folder per plugin.

They are found, configured and replaced like anybody's, so nothing outside this folder imports one by name, and a plugin knows
`protocols`, `errors`, `base` and its own siblings: never the daemon, the store or the core.
"""
