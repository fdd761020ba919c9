"""What the default rules send to agents, unless a rule sets another message. Pure."""

from __future__ import annotations

CI_FAILED = """\
The checks fail on your branch (attempt {{attempt}}):

{{errors}}

Find the cause, fix it, run the checks yourself, and commit."""

CHANGES_REQUESTED = """\
A reviewer asks for changes:

{{comments}}

Address each point, commit, and say for each what you did."""

_AGENT_EXITED = (
    "Your process ended before you were done ({{reason}}). Look at what is there, and go on where you left off."
)

_AGENT_STUCK = (
    "You were started again because nothing was heard of you. Look at what is there, and go on where you left off."
)

_LIMIT_OVER = "The usage limit is over. Go on where you left off."

RESTART_TEXTS = {"agent-exited": _AGENT_EXITED, "agent-stuck": _AGENT_STUCK, "usage-limit": _LIMIT_OVER}
"""Text for an agent that is started again or may continue, unless the rule has a message."""

REVIEW_COMMENT = """\
New review comments:

{{comments}}

Answer or address each of them; commit what you change."""

MERGE_CONFLICTS = """\
Your branch conflicts with {{base}} in:

{{files}}

What {{base}} did there meanwhile:
{{theirs}}

What you did:
{{ours}}

Begin with: {{update}}
Keep what both sides meant, run the checks, and finish with everything committed."""
