"""What pages show of an experiment as of its last commit, worked out once for all who look."""

from __future__ import annotations

from typing import Any

from balaclava.service.dashboard import svg_charts
from balaclava.service.documents import experiment_document, results_document
from balaclava.service.engine.served_experiment import ServedExperiment
from balaclava.service.service import Service

_POINTS = 300  # of a curve: more than a chart has room to show
_ROWS = 60  # of the table of arms


class PageValues:
    """Every two seconds every open page asks, and most of the time nothing has happened."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._results: dict[str, tuple[ServedExperiment, dict[str, Any]]] = {}

    def of(self, name: str) -> dict[str, Any]:
        """The values of the live part of a page, all of the same commit."""
        committed = self._service.committed(name)
        results = self._results_of(name, committed)
        arms = results["arms"]
        restored = self._service.ledger.charged(committed.definition.uid)[2]
        return {
            "experiment": experiment_document(committed, restored),
            "results": results,
            "colours": svg_charts.colours(arms),
            "shown": [arms[arm] for arm in svg_charts.most_chosen(arms, _ROWS, _ROWS)],
        }

    def _results_of(self, name: str, committed: ServedExperiment) -> dict[str, Any]:
        known = self._results.get(name)
        if known is not None and known[0] is committed:
            return known[1]
        results = results_document(committed)
        self._results[name] = (committed, results)
        return results

    def curves(self, name: str, colours: dict[int, int]) -> dict[str, Any]:
        """What the charts draw."""
        return svg_charts.curves(self._service.history(name, _POINTS), colours)
