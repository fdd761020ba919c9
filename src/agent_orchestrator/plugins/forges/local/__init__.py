"""The local forge: pull requests and issues that no service has. Its data is in the daemon's log (`protocols/forge_storage.py`)."""
