"""Reviews of a change, by people and by agents, and the review threads of a forge."""
