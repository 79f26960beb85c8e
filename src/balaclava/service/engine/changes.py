"""Jobs that change a running experiment's settings."""

from dataclasses import dataclass
from typing import Any

from balaclava.service.engine.jobs import BY_SERVICE, WriteJob
from balaclava.service.engine.served_experiment import FINISHED
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
        settings = experiment.settings.changed(experiment.definition, other)
        changed = settings != experiment.settings
        if any(name in self.changes for name in _OF_ARMS):
            if experiment.state == FINISHED:
                raise Problem(409, "the experiment is finished; its arms cannot change")
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
        experiment.clean_up_at(work.now)  # retention may be shorter
        work.mark_changed(experiment)
