"""Renders metrics in Prometheus' text format. Loaded on the first request, so that a daemon without monitoring loads no library for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from agent_orchestrator.views.metrics import MetricFamily
from agent_orchestrator.views.traffic import DURATION_BOUNDS, Traffic


class _CollectedMetrics(Collector):
    """The collected metrics, as a collector for a registry."""

    def __init__(self, families: Sequence[MetricFamily], traffic: Traffic) -> None:
        self._families, self._traffic = families, traffic

    def collect(self) -> Iterable[Metric]:
        yield from map(_metric, self._families)
        yield from _requests(self._traffic)


def render(families: Sequence[MetricFamily], traffic: Traffic) -> bytes:
    """Return all metrics, including those of the daemon's process."""
    registry = CollectorRegistry()
    registry.register(_CollectedMetrics(families, traffic))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def _metric(family: MetricFamily) -> Metric:
    family_type = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = family_type(family.name, family.help, labels=family.labels)
    for labels, value in sorted(family.values.items()):
        metric.add_metric(list(labels), value)
    return metric


def _requests(traffic: Traffic) -> Iterable[Metric]:
    answers = CounterMetricFamily("ao_http_requests", "Requests answered.", labels=("method", "route", "status"))
    for (method, route, status), count in sorted(traffic.request_counts.copy().items()):
        answers.add_metric([method, route, str(status)], count)
    durations = HistogramMetricFamily(
        "ao_http_request_seconds", "Seconds until an answer began.", labels=("method", "route")
    )
    for key, counts in sorted(traffic.duration_counts.copy().items()):
        total, buckets = 0, []
        for bound, count in zip((*DURATION_BOUNDS, float("inf")), counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound == float("inf") else str(bound), float(total)))
        durations.add_metric(list(key), buckets, traffic.seconds[key])
    yield answers
    yield durations
