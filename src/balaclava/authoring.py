"""Names for authors of policies, environments and mechanisms.

    from balaclava.authoring import Policy, kernel, register_policy

The docstrings of `Policy` and `Environment` each contain a complete example. A registered class is
found by its name everywhere. An installed package registers its classes through the entry points
`balaclava.policies` and `balaclava.environments`. `balaclava.testing` checks them.

Frames are modules that keep a policy's records (`pools.begin_pools`, `pending.take_note`). Names
that the simplest policies need from them are also available directly.
"""

from balaclava._core.declared import Arms as Arms
from balaclava._core.declared import Contamination as Contamination
from balaclava._core.declared import Delta as Delta
from balaclava._core.declared import Epsilon as Epsilon
from balaclava._core.declared import EpsilonOrZero as EpsilonOrZero
from balaclava._core.declared import Experts as Experts
from balaclava._core.declared import FailureProbability as FailureProbability
from balaclava._core.declared import Horizon as Horizon
from balaclava._core.declared import MeanRange as MeanRange
from balaclava._core.declared import Means as Means
from balaclava._core.declared import MomentBound as MomentBound
from balaclava._core.declared import MomentOrder as MomentOrder
from balaclava._core.declared import Outside as Outside
from balaclava._core.declared import PositiveMeans as PositiveMeans
from balaclava._core.declared import RadiusScale as RadiusScale
from balaclava._core.declared import Range as Range
from balaclava._core.declared import ReleaseEpsilon as ReleaseEpsilon
from balaclava._core.declared import RewardRange as RewardRange
from balaclava._core.declared import Sensitivity as Sensitivity
from balaclava._core.kernels import compiled as compiled
from balaclava._core.kernels import kernel as kernel
from balaclava.environments.base import ENVIRONMENTS as _ENVIRONMENTS
from balaclava.environments.base import Environment as Environment
from balaclava.environments.base import Scene as Scene
from balaclava.frames import blocks as blocks
from balaclava.frames import episodes as episodes
from balaclava.frames import epochs as epochs
from balaclava.frames import memory as memory
from balaclava.frames import moments as moments
from balaclava.frames import pending as pending
from balaclava.frames import pools as pools
from balaclava.frames import ridge as ridge
from balaclava.frames import tally as tally
from balaclava.frames.tally import Tally as Tally
from balaclava.frames.tally import begin_tally as begin_tally
from balaclava.frames.tally import count_reward as count_reward
from balaclava.frames.tally import learn_tally as learn_tally
from balaclava.frames.tally import starting_arm as starting_arm
from balaclava.frames.tally import unknown_arm as unknown_arm
from balaclava.policies.base import POLICIES as _POLICIES
from balaclava.policies.base import BoundedPolicy as BoundedPolicy
from balaclava.policies.base import Estimation as Estimation
from balaclava.policies.base import Kernels as Kernels
from balaclava.policies.base import Policy as Policy
from balaclava.policies.base import PrivateBoundedPolicy as PrivateBoundedPolicy
from balaclava.policies.base import PrivateRealPolicy as PrivateRealPolicy
from balaclava.policies.base import failure_or_inverse_horizon as failure_or_inverse_horizon
from balaclava.policies.base import into_unit_interval as into_unit_interval
from balaclava.policies.base import nothing_to_forget as nothing_to_forget
from balaclava.policies.base import onto_unit_grid as onto_unit_grid
from balaclava.policies.base import unchanged_reward as unchanged_reward
from balaclava.policies.contextual.linear_context import ContextualPolicy as ContextualPolicy
from balaclava.policies.contextual.linear_context import (
    PrivateContextualPolicy as PrivateContextualPolicy,
)
from balaclava.policies.expert_policies import ExpertPolicy as ExpertPolicy
from balaclava.policies.expert_policies import PrivateExpertPolicy as PrivateExpertPolicy
from balaclava.policies.intervals import FROM_BATCHES as FROM_BATCHES
from balaclava.policies.intervals import FROM_EPOCHS as FROM_EPOCHS
from balaclava.policies.intervals import FROM_POOLS as FROM_POOLS
from balaclava.policies.intervals import FROM_REPORTS as FROM_REPORTS
from balaclava.policies.intervals import FROM_TALLY as FROM_TALLY
from balaclava.policies.local_policies import LocalBoundedPolicy as LocalBoundedPolicy
from balaclava.policies.local_policies import LocalPolicy as LocalPolicy
from balaclava.policies.local_policies import LocalRealPolicy as LocalRealPolicy
from balaclava.policies.local_policies import truncated_laplace_report as truncated_laplace_report
from balaclava.policies.local_policies import unit_bit_report as unit_bit_report
from balaclava.policies.local_policies import unit_laplace_report as unit_laplace_report
from balaclava.policies.local_policies import unit_level as unit_level
from balaclava.policies.loss_policies import LossPolicy as LossPolicy
from balaclava.policies.loss_policies import PrivateLossPolicy as PrivateLossPolicy
from balaclava.policies.pooled_policies import PooledPolicy as PooledPolicy
from balaclava.privacy.exact_noise import bernoulli as bernoulli
from balaclava.privacy.exact_noise import bernoulli_exp as bernoulli_exp
from balaclava.privacy.exact_noise import discrete_laplace as discrete_laplace
from balaclava.privacy.exact_noise import randomized_bit as randomized_bit
from balaclava.privacy.exact_noise import to_grid as to_grid
from balaclava.privacy.exact_noise import to_steps as to_steps
from balaclava.privacy.exact_noise import to_unit_grid as to_unit_grid
from balaclava.privacy.guarantee import Guarantee as Guarantee
from balaclava.privacy.guarantee import Model as Model
from balaclava.privacy.guarantee import Scope as Scope
from balaclava.privacy.guarantee import not_private as not_private
from balaclava.privacy.mechanisms.base import Terms as Terms
from balaclava.privacy.mechanisms.base import check_budget as check_budget
from balaclava.privacy.mechanisms.base import mechanism as mechanism
from balaclava.privacy.mechanisms.counters import Hybrid as Hybrid
from balaclava.privacy.mechanisms.counters import Logarithmic as Logarithmic
from balaclava.privacy.mechanisms.counters import Trees as Trees
from balaclava.privacy.mechanisms.counters import begin_hybrid as begin_hybrid
from balaclava.privacy.mechanisms.counters import begin_logarithmic as begin_logarithmic
from balaclava.privacy.mechanisms.counters import begin_trees as begin_trees
from balaclava.privacy.mechanisms.counters import hybrid_insert as hybrid_insert
from balaclava.privacy.mechanisms.counters import hybrid_sum as hybrid_sum
from balaclava.privacy.mechanisms.counters import insert_node as insert_node
from balaclava.privacy.mechanisms.counters import logarithmic_insert as logarithmic_insert
from balaclava.privacy.mechanisms.counters import logarithmic_sum as logarithmic_sum
from balaclava.privacy.mechanisms.counters import tree_insert as tree_insert
from balaclava.privacy.mechanisms.counters import tree_levels as tree_levels
from balaclava.privacy.mechanisms.counters import tree_sum as tree_sum
from balaclava.privacy.mechanisms.laplace import laplace_release as laplace_release
from balaclava.privacy.mechanisms.laplace import laplace_report as laplace_report
from balaclava.privacy.mechanisms.laplace import (
    private_argmax_histogram as private_argmax_histogram,
)
from balaclava.privacy.mechanisms.perturbed_index import beta_index as beta_index
from balaclava.privacy.mechanisms.perturbed_index import gaussian_index as gaussian_index
from balaclava.privacy.mechanisms.randomized_response import bernoulli_report as bernoulli_report
from balaclava.privacy.mechanisms.truncated_laplace import (
    truncated_laplace_release as truncated_laplace_release,
)
from balaclava.privacy.mechanisms.truncation import truncated as truncated
from balaclava.privacy.randomness import SystemRandomness as SystemRandomness
from balaclava.privacy.randomness import seeded as seeded

register_environment = _ENVIRONMENTS.register
register_policy = _POLICIES.register
__all__ = sorted(name for name in dir() if not name.startswith("_"))
