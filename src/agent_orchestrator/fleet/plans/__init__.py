"""Break a goal into tasks, and make issues of the tasks.

`plans.py` answers requests: create, list, change and apply plans. `drafter.py` lets an agent plan: the agent gets a brief (`brief.py`) and
answers (`conversation.py`) in a copy of the repository that it cannot write to (`scratch_copy.py`); `validation.py` checks the answer.
`applier.py` makes issues of the tasks, and `yaml_text.py` writes a plan for a person's editor.
"""

from agent_orchestrator.fleet.plans.plans import PlanService as PlanService
