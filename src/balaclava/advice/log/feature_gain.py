"""The gain of deciding by features, estimated on the log itself."""

from typing import Any, NamedTuple

import numpy as np

from balaclava.advice.log.feature_columns import FeatureScaling, fit_scaling
from balaclava.advice.log.log_summary import LogSummary
from balaclava.advice.log.off_policy import (
    OFF_POLICY_METHODS,
    OffPolicyEvaluation,
    evaluate_off_policy,
)

FEATURES_ARE_PUBLIC = (
    "Features count as public: policies that decide by them protect rewards and nothing else, and "
    "a decision may reveal a person's features."
)
# Effective rows behind an estimate, below which no gain is reported: the interval is normal.
_MIN_EFFECTIVE_ROWS = 100


class FeatureGain(NamedTuple):
    """What deciding by features gains over the best single arm, by the log."""

    off_policy: OffPolicyEvaluation
    scaling: FeatureScaling
    rows: np.ndarray  # scaled features, an intercept first

    @property
    def effective_rows(self) -> float:
        """The effective rows of the weaker estimate."""
        return min(value.effective for value in self.off_policy.values)

    @property
    def clear(self) -> bool:
        """Whether the log shows a gain, beyond chance, from enough rows."""
        gain = self.off_policy.gain
        enough = self.effective_rows >= _MIN_EFFECTIVE_ROWS
        return enough and gain["doubly robust"].low > 0 and gain["SNIPS"].value > 0

    def findings(self) -> list[str]:
        """That features are public, and what the log shows, in sentences."""
        names = ", ".join(self.scaling.names)
        gains = "; ".join(
            f"{method} {each.value:.3g}, 95 % interval {each.low:.3g} to {each.high:.3g}"
            for method, each in self.off_policy.gain.items()
        )
        sentences = [FEATURES_ARE_PUBLIC]
        if self.off_policy.estimated:
            sentences.append(
                "Warning: no propensities were given. They were estimated from the features "
                "(logistic regression). If the logging policy used anything else that matters, "
                "the estimates below are biased, and their intervals do not show it. Log the "
                "chance of each choice, and give its column with --propensity."
            )
        sentences.append(
            f"Deciding by {names} instead of playing the best single arm would gain, per decision: "
            f"{gains}. Both were fitted on one half of the log and evaluated on the other, both "
            "ways."
        )
        if self.effective_rows < _MIN_EFFECTIVE_ROWS:
            sentences.append(
                f"Only {self.effective_rows:.0f} effective rows follow these policies: too few to "
                "tell."
            )
        elif not self.clear:
            sentences.append(
                "This log does not show that features help, so no policy with features is advised."
            )
        return sentences

    def to_dict(self) -> dict[str, Any]:
        off = self.off_policy
        return {
            "public": FEATURES_ARE_PUBLIC,
            "propensities": "estimated" if off.estimated else "logged",
            "values": [
                {
                    "policy": value.policy,
                    "effective": value.effective,
                    **{method: value.estimates[method]._asdict() for method in OFF_POLICY_METHODS},
                }
                for value in off.values
            ],
            "gain": {method: off.gain[method]._asdict() for method in OFF_POLICY_METHODS},
            "clear": self.clear,
            "scaling": self.scaling.to_dict(),
        }


def estimate_feature_gain(log: LogSummary, seed: int) -> FeatureGain | None:
    """Estimate the gain of the log's features; None if it has none."""
    if log.features is None:
        return None
    scaling = fit_scaling(log.features)
    rows = scaling.rows(log.features.table)
    off_policy = evaluate_off_policy(
        log.logged.arms, log.logged.rewards, rows, log.propensities, log.participants, seed
    )
    return FeatureGain(off_policy, scaling, rows)
