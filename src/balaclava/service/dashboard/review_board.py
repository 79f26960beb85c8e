"""The page for a review board, of an experiment as it runs."""

from __future__ import annotations

import datetime

from balaclava.errors import MissingPartError
from balaclava.service.problems import Problem
from balaclava.service.service import Service


def review_page(service: Service, name: str) -> str:
    """What is promised by this experiment, level by level; what only its owner knows is a blank."""
    try:  # not with the module: it brings the simulator along
        from balaclava.reporting.assessment_input import AssessmentInput
        from balaclava.reporting.assessment_page import assessment_page
    except MissingPartError as error:
        raise Problem(501, str(error)) from None
    experiment = service.committed(name)
    definition = experiment.definition
    restored = service.ledger.charged(definition.uid)[2]
    cap = definition.rewards_per_person * (1 + restored)
    named = experiment.counters.anonymous == 0
    counted = f"The service learns from at most {definition.rewards_per_person} of each person."
    dossier = AssessmentInput(
        experiment.policy,
        title=definition.name,
        owner=definition.owner,
        purpose=definition.purpose,
        population=definition.population or "",
        date=str(datetime.datetime.now(datetime.UTC).date()),
        rewards_per_person=cap if named else None,
        answers={"cap": counted} if named else {},
        guarantee=definition.guarantee(experiment.policy, restored),
    )
    return assessment_page(dossier)
