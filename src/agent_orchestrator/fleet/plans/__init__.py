"""Break a goal into tasks, and make issues of the tasks.

`service.py` answers requests: create, list, change and apply plans. `draft.py` lets an agent plan: the agent gets a brief (`brief.py`) and
answers (`conversation.py`) in a copy of the repository that it cannot write to (`scratch_copy.py`); `validation.py` checks the answer.
`apply.py` makes issues of the tasks, and `yaml_text.py` writes a plan for a person's editor.
"""

from agent_orchestrator.fleet.plans.service import Planner as Planner
