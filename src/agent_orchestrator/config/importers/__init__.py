"""Configurations of other orchestrators, brought over: what each key became is told, nothing goes silently.

`recognition.py` finds out whose file it is. Two kinds have our own form, or nearly: their files go through `compat.py` (`similar.py`). The
others are translated key by key (`other_tools.py`). `merge.py` puts the outcome into a file of ours, whose own words win unless told
otherwise.
"""

from agent_orchestrator.config.importers.key_report import Brought, Entry
from agent_orchestrator.config.importers.merge import Merged, merge
from agent_orchestrator.config.importers.recognition import bring

__all__ = ["Brought", "Entry", "Merged", "bring", "merge"]
