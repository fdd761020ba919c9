"""How people are told: one file a notifier. `http.py` speaks HTTP for them, `texts.py` writes for them."""
