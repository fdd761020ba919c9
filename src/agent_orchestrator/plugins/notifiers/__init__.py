"""Notifiers: how people are notified, one file per service. `http.py` sends their requests, `texts.py` formats their texts."""
