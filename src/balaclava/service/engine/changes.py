"""Jobs that change a running experiment's settings."""

from dataclasses import dataclass
from typing import Any

from balaclava.service.engine.jobs import BY_SERVICE, WriteJob
from balaclava.service.engine.served_experiment import ServedExperiment
from balaclava.service.engine.unit_of_work import Prefetch, UnitOfWork
from balaclava.service.problems import Problem
from balaclava.service.store.ledger import EDITED, Ledger

_OF_ARMS = ("add_arms", "retire_arms", "shares")


@dataclass
class EditExperiment(WriteJob):
    """Change owner, purpose, retention, arms or shares, or archive."""

    ledger: Ledger
    name: str
    changes: dict[str, Any]
    by: str = BY_SERVICE

    def prefetch(self, wanted: Prefetch) -> None:
        wanted.names.add(self.name)

    def apply(self, work: UnitOfWork) -> None:
        experiment = work.experiment(self.name)
        other = {name: self.changes[name] for name in self.changes if name not in _OF_ARMS}
        _check_limits(experiment, other)
        settings = experiment.settings.changed(experiment.definition, other)
        changed = settings != experiment.settings
        if any(name in self.changes for name in _OF_ARMS):
            if experiment.fixed_arms:
                raise Problem(409, experiment.fixed_arms)
            work.revoke_leases(experiment)
            changed |= experiment.change_arms(
                self.changes.get("add_arms", ()),
                self.changes.get("retire_arms", ()),
                self.changes.get("shares"),
                lambda arm: work.open_decisions(experiment, arm),
            )
        if not changed:
            return
        what = ", ".join(f"{name} = {value!r}" for name, value in sorted(self.changes.items()))
        self.ledger.note(EDITED, self.name, None, what, self.by)
        experiment.settings = settings
        if "guardrail_limits" in other:
            experiment.update_breaker()
        experiment.clean_up_at(work.now)  # retention may be shorter
        work.mark_changed(experiment)


def _check_limits(experiment: ServedExperiment, other: dict[str, Any]) -> None:
    """Check changed limits, and keep those that are not named."""
    changed: dict[str, float] = other.get("guardrail_limits", {})
    rails = {rail.metric: rail for rail in experiment.guardrails.rails}
    for metric, limit in changed.items():
        if metric not in rails:
            raise Problem(
                422,
                f"guardrail_limits: there is no guardrail {metric!r}; its privacy is charged when "
                "an experiment is created, so none can be added",
            )
        rails[metric].check_limit(limit)
    if changed:
        other["guardrail_limits"] = {**(experiment.settings.guardrail_limits or {}), **changed}
