"""Token prices for agents that do not report costs: a dated table, which the user's own file overrides."""

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
    """List prices by model. `$AO_HOME/prices.json` has the same format; its entries add to and override the built-in ones."""

    def __init__(self, own: Path) -> None:
        self._own_file = own
        self._mtime: float | None = None
        self._built_in_prices = _prices_by_model(
            json.loads(resources.files("agent_orchestrator.config").joinpath("prices.json").read_text())
        )
        self._prices = self._built_in_prices

    def cost_usd(self, model: str, input_: int, output: int, cache_read: int, cache_write: int) -> float | None:
        """Return what these tokens cost in dollars, or None if the model's price is unknown."""
        price = self._find_price(model)
        if price is None:
            return None
        read, write = price.get("cacheRead", price["input"]), price.get("cacheWrite", price["input"])
        return (input_ * price["input"] + output * price["output"] + cache_read * read + cache_write * write) / MILLION

    def _find_price(self, model: str) -> Price | None:
        self._reload_if_changed()
        name = model.rpartition("/")[2].lower()
        prefixes = [prefix for prefix in self._prices if name.startswith(prefix)]
        return self._prices[max(prefixes, key=len)] if prefixes else None

    def _reload_if_changed(self) -> None:
        """Reload the user's file if it changed. A broken file is logged and ignored."""
        try:
            mtime = self._own_file.stat().st_mtime
        except OSError:
            self._mtime, self._prices = None, self._built_in_prices
            return
        if mtime == self._mtime:
            return
        self._mtime = mtime
        try:
            own_models = _prices_by_model(json.loads(self._own_file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            log.warning("the file of prices cannot be used", file=str(self._own_file), error=str(error))
            own_models = {}
        self._prices = {**self._built_in_prices, **own_models}


def _prices_by_model(data: Any) -> dict[str, Price]:
    models = {}
    for name, price in data["models"].items():
        models[str(name).lower()] = {kind: float(value) for kind, value in price.items()}
        if not {"input", "output"} <= models[str(name).lower()].keys():
            raise ValueError(f"{name} has no price for input and output")
    return models
