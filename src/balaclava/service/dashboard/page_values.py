"""Values for the templates: an experiment at its last commit, and the review board's page."""

import dataclasses
import datetime
from typing import Any

from balaclava.errors import MissingPartError
from balaclava.service.dashboard import svg_charts
from balaclava.service.documents import (
    experiment_document,
    for_readers,
    privacy_document,
    results_document,
)
from balaclava.service.engine.served_experiment import FINISHED, ServedExperiment
from balaclava.service.export import awaited
from balaclava.service.problems import Problem
from balaclava.service.service import Service

_CURVE_POINTS = 300  # more than a chart of 600 pixels can display
_ARM_ROWS = 60  # rows of the table of arms


class PageValues:
    """Values of the live parts of pages, cached per commit: every open page polls them."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._results: dict[str, tuple[ServedExperiment, dict[str, Any]]] = {}

    def experiment(self, name: str, *, admin: bool = False) -> dict[str, Any]:
        """The live numbers of one experiment, all from the same commit.

        Only an admin gets counts of rewards that arrived.
        """
        committed = self._service.committed(name)
        results = self._results_at(name, committed)
        if not admin:
            results = for_readers(results)
        arms = results["arms"]
        displayed = svg_charts.most_chosen(arms, _ARM_ROWS, _ARM_ROWS)
        restored = self._service.ledger.charged(committed.definition.uid)[2]
        return {
            "experiment": experiment_document(committed, restored),
            "results": results,
            "colours": svg_charts.colours(arms),
            "rows": [arms[arm] for arm in displayed],
            "differences": [
                each for each in results["differences"] or () if each["arm"] in displayed
            ],
        }

    def charts(self, name: str, *, admin: bool = False) -> dict[str, Any]:
        """The live numbers, and the curves of the charts."""
        values = self.experiment(name, admin=admin)
        history = self._service.history(name, _CURVE_POINTS)
        return values | {"curves": svg_charts.curves(history, values["colours"])}

    def _results_at(self, name: str, committed: ServedExperiment) -> dict[str, Any]:
        known = self._results.get(name)
        if known is not None and known[0] is committed:
            return known[1]
        results = results_document(committed)
        self._results[name] = (committed, results)
        return results


def review_page(service: Service, name: str) -> str:
    """The page for a review board, with blanks for the owner to fill in."""
    try:  # a late import, because it loads the simulator
        from balaclava.reporting.assessment_input import AssessmentInput
        from balaclava.reporting.assessment_page import assessment_page
        from balaclava.reporting.deployments.trial_outcome import outcome_of_service
    except MissingPartError as error:
        raise Problem(501, str(error)) from None
    experiment = service.committed(name)
    definition = experiment.definition
    restored = service.ledger.charged(definition.uid)[2]
    cap = definition.rewards_per_person * (1 + restored)
    named = experiment.counters.anonymous == 0
    answer = f"The service learns from at most {definition.rewards_per_person} of each person."
    assessment = AssessmentInput(
        experiment.policy,
        title=definition.name,
        owner=experiment.owner,
        purpose=experiment.purpose,
        population=definition.population or "",
        date=str(datetime.datetime.now(datetime.UTC).date()),
        rewards_per_person=cap if named else None,
        rewards_apart=definition.rewards_apart,
        answers={"cap": answer} if named else {},
        guarantee=experiment.guarantee(restored),
    )
    if experiment.state != FINISHED:
        return assessment_page(assessment)
    outcome = outcome_of_service(
        experiment_document(experiment, restored),
        privacy_document(experiment, service.ledger),
        for_readers(results_document(experiment)) | {"awaited": awaited(service, name)},
    )
    # Its parameters are those of the assessment; arms that came and went are no departure.
    return assessment_page(assessment, outcome=dataclasses.replace(outcome, parameters={}))
