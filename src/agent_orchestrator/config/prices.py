"""What tokens cost, for agents that do not say so themselves: one dated table, which the user's own file goes before."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import structlog

Price = dict[str, float]

MILLION = 1_000_000

log = structlog.get_logger()


class Prices:
    """List prices by model; `$AO_HOME/prices.json`, of the same shape, adds to them and overrides them."""

    def __init__(self, own: Path) -> None:
        self._own = own
        self._seen: float | None = None
        self._shipped = _models(
            json.loads(resources.files("agent_orchestrator.config").joinpath("prices.json").read_text())
        )
        self._models = self._shipped

    def usd(self, model: str, input_: int, output: int, cache_read: int, cache_write: int) -> float | None:
        """What so many tokens cost; none where no price is known."""
        price = self._price(model)
        if price is None:
            return None
        read, write = price.get("cacheRead", price["input"]), price.get("cacheWrite", price["input"])
        return (input_ * price["input"] + output * price["output"] + cache_read * read + cache_write * write) / MILLION

    def _price(self, model: str) -> Price | None:
        self._look()
        name = model.rpartition("/")[2].lower()
        fitting = [known for known in self._models if name.startswith(known)]
        return self._models[max(fitting, key=len)] if fitting else None

    def _look(self) -> None:
        """Take up the user's file anew when it changed; a broken one is told of and does not count."""
        try:
            changed = self._own.stat().st_mtime
        except OSError:
            self._seen, self._models = None, self._shipped
            return
        if changed == self._seen:
            return
        self._seen = changed
        try:
            own = _models(json.loads(self._own.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            log.warning("the file of prices cannot be used", file=str(self._own), error=str(error))
            own = {}
        self._models = {**self._shipped, **own}


def _models(data: Any) -> dict[str, Price]:
    models = {}
    for name, price in data["models"].items():
        models[str(name).lower()] = {kind: float(value) for kind, value in price.items()}
        if not {"input", "output"} <= models[str(name).lower()].keys():
            raise ValueError(f"{name} has no price for input and output")
    return models
