"""Jobs that change a running experiment's settings."""

from dataclasses import dataclass
from typing import Any

from balaclava.service.engine.jobs import BY_SERVICE, WriteJob
from balaclava.service.engine.unit_of_work import Prefetch, UnitOfWork
from balaclava.service.store.ledger import EDITED, Ledger


@dataclass
class EditExperiment(WriteJob):
    """Change owner, purpose or retention, or archive."""

    ledger: Ledger
    name: str
    changes: dict[str, Any]
    by: str = BY_SERVICE

    def prefetch(self, wanted: Prefetch) -> None:
        wanted.names.add(self.name)

    def apply(self, work: UnitOfWork) -> None:
        experiment = work.experiment(self.name)
        settings = experiment.settings.changed(experiment.definition, self.changes)
        if settings == experiment.settings:
            return
        what = ", ".join(f"{name} = {value!r}" for name, value in sorted(self.changes.items()))
        self.ledger.note(EDITED, self.name, None, what, self.by)
        experiment.settings = settings
        work.mark_changed(experiment)
