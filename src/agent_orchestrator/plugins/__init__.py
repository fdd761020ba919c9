"""The plugins that come with the product: one folder per slot, one module or folder per plugin.

They are discovered, configured and replaced like plugins of other authors, so no module outside this folder imports one by name. A
plugin imports `protocols`, `errors`, `base` and its own siblings, not the daemon or the store. Two modules import more:
`agents/shared/spool.py` (the verdicts of `core/turn_text/review_parser.py`) and `terminals/show.py` (the plugin registry of `config/`).
"""
