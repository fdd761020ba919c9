"""A damaged `$AO_HOME` put in order, without a daemon: `python -m agent_orchestrator.services.repair [--dry-run]`.

`files.py` sees to the small files, `records.py` to the database, `workspaces.py` to what the sessions have in Git; `lost.py` finds
what is there of sessions that no record speaks of. `aside.py` keeps whatever is changed as it was: nothing is destroyed.
"""
