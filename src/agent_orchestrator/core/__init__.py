"""The path of data, read top to bottom: events → facts → status → reactions → outbox → effects.

`events`, `facts`, `fold`, `status`, `rules` and `reactions` are pure: functions of their arguments, no clock, no file, no plugin.
`engine` is the one writer: whoever observes or wants something calls `Flow.append` (`sessions/agents/observer.py` for what agents do,
`sessions/sessions.py` for what people ask). `outbox` and `effects` carry out what was decided; `store/` keeps it.
"""
