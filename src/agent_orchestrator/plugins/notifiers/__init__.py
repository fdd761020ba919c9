"""How people are told: one file a notifier. `posting.py` speaks HTTP for them, `texts.py` writes for them."""
