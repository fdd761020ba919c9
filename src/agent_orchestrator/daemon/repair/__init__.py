"""A damaged `$AO_HOME` put in order, without a daemon: `python -m agent_orchestrator.daemon.repair [--dry-run]`.

`files.py` sees to the small files, `database.py` to the database, `workspaces.py` to what the sessions have in Git; `orphans.py` finds
what is there of sessions that no record speaks of. `backup.py` keeps whatever is changed as it was: nothing is destroyed.
"""
