"""The way of data, read top to bottom: events → facts → status → reactions → outbox → effects.

`events`, `facts`, `status`, `rules` and `reactions` are the pure middle: functions of their arguments, no clock, no
file, no plugin. `engine` is the one writer: whoever saw or wants something calls `Flow.append` (`sessions/agents/observer.py` for what
agents do, `sessions/sessions.py` for what people ask). `outbox` and `effects` carry out what the middle decided; `codec` writes
facts down. Nothing here knows HTTP or SQL.
"""
