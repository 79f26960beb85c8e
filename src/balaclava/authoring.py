"""Names for authors of policies, environments and mechanisms.

    from balaclava.authoring import Policy, kernel, register_policy

The docstrings of `Policy` and `Environment` each contain a complete example. A registered class is
found by its name everywhere. An installed package registers its classes through the entry points
`balaclava.policies` and `balaclava.environments`. `balaclava.testing` checks them.

Frames are modules that keep a policy's records (`pools.begin_pools`, `pending.take_note`). Names
that the simplest policies need from them are also available directly.
"""

from balaclava._core.declared import (
    Arms,
    Contamination,
    Delta,
    Epsilon,
    EpsilonOrZero,
    Experts,
    FailureProbability,
    Horizon,
    MeanRange,
    Means,
    MomentBound,
    MomentOrder,
    Outside,
    PositiveMeans,
    RadiusScale,
    Range,
    ReleaseEpsilon,
    RewardRange,
    Sensitivity,
)
from balaclava._core.kernels import compiled, kernel
from balaclava.environments.base import Environment, Scene
from balaclava.environments.base import register as register_environment
from balaclava.frames import blocks, episodes, epochs, pending, pools, ridge, tally
from balaclava.frames.tally import (
    Tally,
    begin_tally,
    count_reward,
    learn_tally,
    starting_arm,
    unknown_arm,
)
from balaclava.policies.base import (
    BoundedPolicy,
    Estimation,
    Kernels,
    Policy,
    PrivateBoundedPolicy,
    PrivateRealPolicy,
    failure_or_inverse_horizon,
    into_unit_interval,
    nothing_to_forget,
    onto_unit_grid,
    unchanged_reward,
)
from balaclava.policies.base import register as register_policy
from balaclava.policies.contextual.linear_context import ContextualPolicy, PrivateContextualPolicy
from balaclava.policies.expert_policies import ExpertPolicy, PrivateExpertPolicy
from balaclava.policies.intervals import FROM_POOLS, FROM_REPORTS, FROM_TALLY
from balaclava.policies.local_policies import (
    LocalBoundedPolicy,
    LocalPolicy,
    LocalRealPolicy,
    truncated_laplace_report,
    unit_bit_report,
    unit_laplace_report,
    unit_level,
)
from balaclava.policies.loss_policies import LossPolicy, PrivateLossPolicy
from balaclava.privacy.exact_noise import (
    bernoulli,
    bernoulli_exp,
    discrete_laplace,
    randomized_bit,
    to_grid,
    to_steps,
    to_unit_grid,
)
from balaclava.privacy.guarantee import Guarantee, Model, Scope, not_private
from balaclava.privacy.mechanisms.base import Terms, check_budget, mechanism
from balaclava.privacy.mechanisms.counters import (
    Hybrid,
    Logarithmic,
    Trees,
    begin_hybrid,
    begin_logarithmic,
    begin_trees,
    hybrid_insert,
    hybrid_sum,
    insert_node,
    logarithmic_insert,
    logarithmic_sum,
    tree_insert,
    tree_levels,
    tree_sum,
)
from balaclava.privacy.mechanisms.laplace import (
    laplace_release,
    laplace_report,
    private_argmax_histogram,
)
from balaclava.privacy.mechanisms.perturbed_index import beta_index, gaussian_index
from balaclava.privacy.mechanisms.randomized_response import bernoulli_report
from balaclava.privacy.mechanisms.truncated_laplace import truncated_laplace_release
from balaclava.privacy.mechanisms.truncation import truncated
from balaclava.privacy.randomness import SystemRandomness, seeded

__all__ = [
    "FROM_POOLS",
    "FROM_REPORTS",
    "FROM_TALLY",
    "Arms",
    "BoundedPolicy",
    "Contamination",
    "ContextualPolicy",
    "Delta",
    "Environment",
    "Epsilon",
    "EpsilonOrZero",
    "Estimation",
    "ExpertPolicy",
    "Experts",
    "FailureProbability",
    "Guarantee",
    "Horizon",
    "Hybrid",
    "Kernels",
    "LocalBoundedPolicy",
    "LocalPolicy",
    "LocalRealPolicy",
    "Logarithmic",
    "LossPolicy",
    "MeanRange",
    "Means",
    "Model",
    "MomentBound",
    "MomentOrder",
    "Outside",
    "Policy",
    "PositiveMeans",
    "PrivateBoundedPolicy",
    "PrivateContextualPolicy",
    "PrivateExpertPolicy",
    "PrivateLossPolicy",
    "PrivateRealPolicy",
    "RadiusScale",
    "Range",
    "ReleaseEpsilon",
    "RewardRange",
    "Scene",
    "Scope",
    "Sensitivity",
    "SystemRandomness",
    "Tally",
    "Terms",
    "Trees",
    "begin_hybrid",
    "begin_logarithmic",
    "begin_tally",
    "begin_trees",
    "bernoulli",
    "bernoulli_exp",
    "bernoulli_report",
    "beta_index",
    "blocks",
    "check_budget",
    "compiled",
    "count_reward",
    "discrete_laplace",
    "episodes",
    "epochs",
    "failure_or_inverse_horizon",
    "gaussian_index",
    "hybrid_insert",
    "hybrid_sum",
    "insert_node",
    "into_unit_interval",
    "kernel",
    "laplace_release",
    "laplace_report",
    "learn_tally",
    "logarithmic_insert",
    "logarithmic_sum",
    "mechanism",
    "not_private",
    "nothing_to_forget",
    "onto_unit_grid",
    "pending",
    "pools",
    "private_argmax_histogram",
    "randomized_bit",
    "register_environment",
    "register_policy",
    "ridge",
    "seeded",
    "starting_arm",
    "tally",
    "to_grid",
    "to_steps",
    "to_unit_grid",
    "tree_insert",
    "tree_levels",
    "tree_sum",
    "truncated",
    "truncated_laplace_release",
    "truncated_laplace_report",
    "unchanged_reward",
    "unit_bit_report",
    "unit_laplace_report",
    "unit_level",
    "unknown_arm",
]
