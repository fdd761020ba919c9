"""The path of data, to be read top to bottom: events → facts → status → reactions → outbox → effects.

`events`, `facts`, `fold`, `status`, `rules` and `reactions` are pure: functions of their arguments, no clock, no file, no plugin.
`engine` is the single writer: other code records events with `Flow.append` (`sessions/agents/observer.py` what agents do,
`sessions/sessions.py` what people request). `outbox` and `effects` carry out what was decided; `store/` keeps it.
"""
