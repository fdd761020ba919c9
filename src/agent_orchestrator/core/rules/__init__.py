"""Reaction rules as data. Pure.

`model.py` says what a rule is; `default_rules.py` has the rules that apply where the configuration says nothing,
and `default_messages.py` what they send to agents; `stuck_threshold.py` says when a session counts as stuck.
"""
