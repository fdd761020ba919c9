"""Convert configurations of other orchestrators and report what each key became; nothing is dropped silently.

`recognition.py` detects which orchestrator a file is from. Two kinds have our format or nearly: their files go through `compat.py`
(`similar.py`). The others are translated key by key (`other_tools.py`). `merge.py` merges the result into a file of ours, whose own
values win by default.
"""

from agent_orchestrator.config.importers.key_report import Brought, Entry
from agent_orchestrator.config.importers.merge import Merged, merge
from agent_orchestrator.config.importers.recognition import bring

__all__ = ["Brought", "Entry", "Merged", "bring", "merge"]
