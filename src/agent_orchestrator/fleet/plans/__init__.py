"""From a goal to tasks, and from tasks to issues.

`service.py` is what may be asked: a plan, the list, a change, its application. `draft.py` has an agent plan: it gets a brief (`brief.py`)
and answers (`conversation.py`) in a copy of the repository that it cannot write to (`scratch_copy.py`); `validation.py` checks the answer.
`apply.py` makes issues of the tasks, and `yaml_text.py` writes a plan for a person's editor.
"""

from agent_orchestrator.fleet.plans.service import Planner as Planner
