"""balaclava: differentially private multi-armed bandits.

>>> import balaclava as bl
>>> policy = bl.policy("ucb1", arms=3)
>>> world = bl.environment("bernoulli", means=[0.3, 0.5, 0.7])
>>> results = bl.simulate(policy, world, horizon=1_000, repetitions=10, seed=1)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Loaded first, so that the functions `policies` and `environments` below keep these two names.
import balaclava.environments
import balaclava.policies  # noqa: F401

__version__ = "0.1.0"

if TYPE_CHECKING:
    from balaclava import bounds as bounds
    from balaclava import errors as errors
    from balaclava._kernel import kernel as kernel
    from balaclava.auditing.audit import audit as audit
    from balaclava.auditing.report import AuditReport as AuditReport
    from balaclava.choosing import Recommendation as Recommendation
    from balaclava.choosing import recommend as recommend
    from balaclava.environments.base import Environment as Environment
    from balaclava.environments.base import EnvironmentEntry
    from balaclava.environments.base import environment as environment
    from balaclava.papers.base import Reproduction as Reproduction
    from balaclava.papers.base import reproduce as reproduce
    from balaclava.policies.adversarial.conversion import privatise as privatise
    from balaclava.policies.agent import Agent as Agent
    from balaclava.policies.agent import Decision as Decision
    from balaclava.policies.agent import restore as restore
    from balaclava.policies.base import Kernels as Kernels
    from balaclava.policies.base import Policy as Policy
    from balaclava.policies.base import PolicyEntry
    from balaclava.policies.base import policy as policy
    from balaclava.policies.base import register as register
    from balaclava.policies.experts.recommend import ExpertsRecommendation as ExpertsRecommendation
    from balaclava.policies.experts.recommend import recommend_experts as recommend_experts
    from balaclava.privacy.guarantee import Guarantee as Guarantee
    from balaclava.simulation.calibration import Calibration as Calibration
    from balaclava.simulation.calibration import calibrate as calibrate
    from balaclava.simulation.engine import Interrupted as Interrupted
    from balaclava.simulation.engine import simulate as simulate
    from balaclava.simulation.results import Results as Results
    from balaclava.simulation.results import load as load
    from balaclava.simulation.sweep import open_sweep as open_sweep

# Public names and where they live; a name is imported when it is first used.
_HOMES = {
    "_kernel": ["kernel"],
    "auditing.audit": ["audit"],
    "auditing.report": ["AuditReport"],
    "choosing": ["Recommendation", "recommend"],
    "environments.base": ["Environment", "environment"],
    "papers.base": ["Reproduction", "reproduce"],
    "policies.adversarial.conversion": ["privatise"],
    "policies.agent": ["Agent", "Decision", "restore"],
    "policies.base": ["Kernels", "Policy", "policy", "register"],
    "policies.experts.recommend": ["ExpertsRecommendation", "recommend_experts"],
    "privacy.guarantee": ["Guarantee"],
    "simulation.calibration": ["Calibration", "calibrate"],
    "simulation.engine": ["Interrupted", "simulate"],
    "simulation.results": ["Results", "load"],
    "simulation.sweep": ["open_sweep"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(["bounds", "environments", "errors", "policies", *_HOME_OF])


def policies() -> list[PolicyEntry]:
    """Every registered policy: name, class, title, reference, guarantee and reward kind."""
    from balaclava.policies.base import entries

    return entries()


def environments() -> list[EnvironmentEntry]:
    """Every registered environment: name, class, title and parameters."""
    from balaclava.environments.base import entries

    return entries()


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    elif name in ("bounds", "errors", "testing"):
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module 'balaclava' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
