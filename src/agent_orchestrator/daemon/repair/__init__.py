"""Repair of a damaged `$AO_HOME`, without a daemon: `python -m agent_orchestrator.daemon.repair [--dry-run]`.

`files.py` repairs the small files, `database.py` the database, `workspaces.py` what sessions have in Git; `orphans.py` finds what is
left of sessions that have no record. `backup.py` keeps a copy of everything that is changed: nothing is destroyed.
"""
