"""A setting of an experiment file, simulated without a sweep."""

from __future__ import annotations

import balaclava as bl
from balaclava.experiments.experiment_file import SimulationSetting


def simulated(setting: SimulationSetting) -> bl.Results:
    return bl.simulate(
        setting.policies,
        setting.environment,
        horizon=setting.horizon,
        repetitions=setting.repetitions,
        seed=setting.seed,
        checkpoints=setting.checkpoints,
        delay=setting.feedback.delay,
        **setting.feedback.settling._asdict(),
    )
