"""The way of data, read top to bottom: events → facts → status → reactions → outbox → effects.

`events`, `facts`, `status`, `rules` and `reactions` are the pure middle: functions of their arguments, no clock, no
file, no plugin. `outbox` and `effects` carry out what the middle decided. Nothing here knows HTTP or SQL.
"""
