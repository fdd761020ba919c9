"""Convert configurations of other orchestrators and report what each key became; nothing is dropped silently.

`recognition.py` detects which orchestrator a file is from. Two kinds have our format or nearly: their files go through `old_spellings.py`
(`typescript_and_go.py`). The others are translated key by key (`other_tools.py`). `merge.py` merges the result into a file of ours,
whose own values win by default.
"""

from agent_orchestrator.config.importers.key_report import ImportedConfig, KeyReport
from agent_orchestrator.config.importers.merge import ImportResult, merge_import
from agent_orchestrator.config.importers.recognition import read_import

__all__ = ["ImportResult", "ImportedConfig", "KeyReport", "merge_import", "read_import"]
