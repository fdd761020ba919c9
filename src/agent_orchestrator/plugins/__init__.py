"""The plugins that come with the product: one folder a slot, one file a plugin.

They are found, configured and replaced exactly like a stranger's, so nothing outside this folder imports one by name, and a
plugin knows `protocols.py`, `host.py`, `home.py`, `errors.py` and its own siblings, never the daemon, the store or the flow.
"""
