"""From a goal to tasks, and from tasks to issues.

service.py      what may be asked: a plan, its list, a change, its application
drafting.py     the effect that has an agent plan: brief it (briefing.py), ask it (asking.py) in a copy that it cannot
                write to (scratch.py), check what it says, ask again
applying.py     the tasks become issues: here at once, at a tracker one by one
text.py         a plan as YAML, for a person's editor
"""

from agent_orchestrator.fleet.plans.service import Planner as Planner
