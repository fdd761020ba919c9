"""Reviews of changes by people and agents, and the review threads of a forge."""
