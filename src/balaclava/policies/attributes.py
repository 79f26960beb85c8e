"""Attributes of policies that the rest of the package reads, each with a default.

A policy overrides the ones that apply to it: by a parameter of that name (`horizon: Horizon`), a
property, or a class attribute.
"""

import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal

from balaclava._core.declared import Arms, Declared, overridable


class PolicyAttributes(Declared):
    """Attributes of every policy, with their defaults."""

    arms: Arms

    lost_reward: ClassVar[str] = ""
    """Effect of a reward that never arrives, in words; "" if it has none."""

    winner_reason: ClassVar[str] = ""
    """Why the policy can be expected to name the best arm; "" if it cannot."""

    plays_beyond_horizon: ClassVar[bool] = False
    """Whether the policy has a rule for rounds after its horizon."""

    fixed_arms: ClassVar[str] = "its rule or its proof is for a fixed set of arms"
    """Why arms cannot come or leave while an agent runs; "" if they can."""

    # Of a local policy, see policies/local_policies.py:
    report_level: ClassVar[Callable[..., float] | None] = None
    """Kernel `(params, state, arm, phase) -> level`: sent to the device with a decision."""
    report: ClassVar[Callable[..., float] | None] = None
    """Method `(reward, level) -> report`: what a device calls."""
    report_kernel: ClassVar[Callable[..., float] | None] = None
    """Kernel `(params, reward, level, rng) -> report`: runs on the device."""
    learn_report: ClassVar[Callable[..., None] | None] = None
    """Kernel `(params, state, t, arm, report, phase, rng)`: learns from a report."""
    reports: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    """The smallest and the largest report."""

    coefficients: ClassVar[Callable[..., Any] | None] = None
    """Method `(state) -> estimates` of the coefficients of features; None if none are proved."""

    value_estimates: ClassVar[Callable[..., Any] | None] = None
    """Method `(state, confidence) -> estimates` of values of policies; None if there are none."""

    feature_names: ClassVar[tuple[str, ...] | None] = None
    """Names of the features, set on the object if given."""

    index_law: ClassVar[Callable[..., Any] | None] = None
    """Method `(pulls, total) -> distribution` of an arm's index; enables the exact audit."""

    @overridable
    def horizon(self) -> int | None:
        """Number of rounds that the policy is tuned to; None if it needs no horizon."""
        return None

    @overridable
    def epsilon(self) -> float:
        """Privacy loss of the guarantee."""
        return 0.0

    @overridable
    def delta(self) -> float:
        """Probability outside the privacy loss."""
        return 0.0

    @overridable
    def outside(self) -> Literal["refuse", "clip"]:
        """Treatment of a reward outside `accepts`."""
        return "refuse"

    @overridable
    def start_phase(self) -> int:
        """Pulls of each arm before any index is drawn."""
        return 1

    @overridable
    def moment_order(self) -> float | None:
        """Order of the known moment; None if the policy assumes no moment."""
        return None

    @overridable
    def moment_bound(self) -> float | None:
        """Bound on that moment; None if the policy assumes no moment."""
        return None

    @overridable
    def central_moments(self) -> bool:
        """Whether `moment_bound` bounds E|X - mean|^p instead of E|X|^p."""
        return self.mean_range is not None

    @overridable
    def mean_range(self) -> float | None:
        """Bound on the absolute means; None if the policy assumes none."""
        return None

    @overridable
    def contamination(self) -> float | None:
        """Bound on the share of outliers; None if the policy takes no such bound."""
        return None

    @overridable
    def experts(self) -> int | None:
        """Number of experts whose advice is the context; None without advice."""
        return None

    @overridable
    def features(self) -> int | None:
        """Number of features in a context; None without features."""
        return None

    @overridable
    def catalogue(self) -> Any:
        """Features of each arm, the same in every decision; None if they come with each."""
        return None

    @overridable
    def disjoint(self) -> bool:
        """Whether each arm has its own coefficients for the features."""
        return False

    @overridable
    def feature_bound(self) -> float:
        """Bound on the Euclidean norm of a feature vector."""
        return 1.0

    @overridable
    def blocks(self) -> int:
        """Number of sums in which rewards are released: one per arm, or one for all."""
        return self.arms

    @overridable
    def learning_rate_scale(self) -> float:
        """Factor on the learning rate."""
        return 1.0

    @overridable
    def loss_noise(self) -> float:
        """Scale of the Laplace noise that the policy expects in its losses."""
        return 0.0
