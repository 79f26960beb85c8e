"""`bl.policy`, one signature for each name; written by balaclava.testing.stubs."""

from collections.abc import Sequence
from typing import Any, Literal, overload

from balaclava.policies.adversarial.conversion import Privatised
from balaclava.policies.adversarial.dp_exp3 import DPExp3
from balaclava.policies.adversarial.dp_ftpl import DPFTPL
from balaclava.policies.adversarial.dp_htinf import DPHTINF
from balaclava.policies.adversarial.dp_tsallis_inf import DPTsallisINF
from balaclava.policies.adversarial.ldp_exp3 import LDPExp3
from balaclava.policies.base import Policy, PolicyName
from balaclava.policies.bounded.adap_klucb import AdaPKLUCB
from balaclava.policies.bounded.adap_ucb import AdaPUCB
from balaclava.policies.bounded.dp_ftpl_beta import DPFTPLBeta
from balaclava.policies.bounded.dp_ftpl_gauss import DPFTPLGauss
from balaclava.policies.bounded.dp_ftpl_new import DPFTPLNew
from balaclava.policies.bounded.dp_imed import DPIMED
from balaclava.policies.bounded.dp_klucb import DPKLUCB
from balaclava.policies.bounded.dp_se import DPSE
from balaclava.policies.bounded.dp_ucb import DPUCB
from balaclava.policies.bounded.dp_ucb_bound import DPUCBBound
from balaclava.policies.bounded.dp_ucb_int import DPUCBInt
from balaclava.policies.bounded.gdp_elim_new import GDPElimNew
from balaclava.policies.bounded.lazy_dp_ts import LazyDPTS
from balaclava.policies.bounded.lazy_dp_ucb import LazyDPUCB
from balaclava.policies.bounded.ldp_ucb_bernoulli import LDPUCBBernoulli
from balaclava.policies.bounded.ldp_ucb_laplace import LDPUCBLaplace
from balaclava.policies.bounded.private_ucb import PrivateUCB
from balaclava.policies.classic.at_random import AtRandom
from balaclava.policies.classic.exp3 import Exp3
from balaclava.policies.classic.exp4 import Exp4
from balaclava.policies.classic.ftpl import FTPL
from balaclava.policies.classic.htinf import HTINF
from balaclava.policies.classic.imed import IMED
from balaclava.policies.classic.kl_ucb import KLUCB
from balaclava.policies.classic.robust_ucb import RobustUCB
from balaclava.policies.classic.successive_elimination import SuccessiveElimination
from balaclava.policies.classic.thompson_beta import ThompsonBeta
from balaclava.policies.classic.thompson_gauss import ThompsonGauss
from balaclava.policies.classic.tsallis_inf import TsallisINF
from balaclava.policies.classic.ucb1 import UCB1
from balaclava.policies.contaminated.prae_central import PRAECentral
from balaclava.policies.contaminated.prae_raw import PRAERaw
from balaclava.policies.contextual.dp_lin_ts import DPLinTS
from balaclava.policies.contextual.dp_linucb import DPLinUCB
from balaclava.policies.contextual.ldp_linucb import LDPLinUCB
from balaclava.policies.contextual.lin_ts import LinTS
from balaclava.policies.contextual.linucb import LinUCB
from balaclava.policies.experts.dp_exp3_experts import DPExp3Experts
from balaclava.policies.experts.dp_exp4 import DPExp4
from balaclava.policies.experts.dp_ftpl_experts import DPFTPLExperts
from balaclava.policies.experts.dp_htinf_experts import DPHTINFExperts
from balaclava.policies.experts.ldp_exp4 import LDPExp4
from balaclava.policies.experts.privatised_experts import PrivatisedExperts
from balaclava.policies.heavy_tailed.dpr_adaptive_ucb import DPRAdaptiveUCB
from balaclava.policies.heavy_tailed.dpr_batch_ucb import DPRBatchUCB
from balaclava.policies.heavy_tailed.dpr_se import DPRSE
from balaclava.policies.heavy_tailed.dpr_ucb import DPRUCB
from balaclava.policies.heavy_tailed.ldpr_batch_ucb import LDPRBatchUCB
from balaclava.policies.heavy_tailed.ldpr_se import LDPRSE

@overload
def policy(
    name: Literal["adap-klucb"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    holdout: float = ...,
    explore: float = ...,
    alpha: float = ...,
    horizon: int = ...,
) -> AdaPKLUCB: ...
@overload
def policy(
    name: Literal["adap-ucb"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    holdout: float = ...,
    explore: float = ...,
    alpha: float = ...,
    horizon: int = ...,
) -> AdaPUCB: ...
@overload
def policy(
    name: Literal["dp-exp3"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    horizon: int,
    outside: Literal["refuse", "clip"] = ...,
    holdout: float = ...,
    batch: int | None = ...,
    outstanding: int = ...,
    learning_rate_scale: float = ...,
) -> DPExp3: ...
@overload
def policy(
    name: Literal["dp-exp3-experts"],
    /,
    *,
    arms: int | Sequence[str],
    experts: int,
    horizon: int,
    epsilon: float,
    outside: Literal["refuse", "clip"] = ...,
    holdout: float = ...,
    batch: int | None = ...,
    outstanding: int = ...,
    learning_rate_scale: float = ...,
) -> DPExp3Experts: ...
@overload
def policy(
    name: Literal["dp-exp4"],
    /,
    *,
    arms: int | Sequence[str],
    experts: int,
    horizon: int,
    epsilon: float,
    delta: float,
    outside: Literal["refuse", "clip"] = ...,
    learning_rate_scale: float = ...,
    noise: Literal["laplace", "gaussian"] = ...,
    outstanding: int = ...,
) -> DPExp4: ...
@overload
def policy(
    name: Literal["dp-ftpl"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    horizon: int,
    outside: Literal["refuse", "clip"] = ...,
    holdout: float = ...,
    batch: int | None = ...,
    outstanding: int = ...,
    learning_rate_scale: float = ...,
) -> DPFTPL: ...
@overload
def policy(
    name: Literal["dp-ftpl-beta"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    delta: float,
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    horizon: int = ...,
) -> DPFTPLBeta: ...
@overload
def policy(
    name: Literal["dp-ftpl-experts"],
    /,
    *,
    arms: int | Sequence[str],
    experts: int,
    horizon: int,
    epsilon: float,
    outside: Literal["refuse", "clip"] = ...,
    holdout: float = ...,
    batch: int | None = ...,
    outstanding: int = ...,
    learning_rate_scale: float = ...,
) -> DPFTPLExperts: ...
@overload
def policy(
    name: Literal["dp-ftpl-gauss"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    delta: float,
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    horizon: int = ...,
) -> DPFTPLGauss: ...
@overload
def policy(
    name: Literal["dp-ftpl-new"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    horizon: int,
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    delta: float = ...,
) -> DPFTPLNew: ...
@overload
def policy(
    name: Literal["dp-htinf"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    horizon: int,
    outside: Literal["refuse", "clip"] = ...,
    holdout: float = ...,
    batch: int | None = ...,
    outstanding: int = ...,
    learning_rate_scale: float = ...,
) -> DPHTINF: ...
@overload
def policy(
    name: Literal["dp-htinf-experts"],
    /,
    *,
    arms: int | Sequence[str],
    experts: int,
    horizon: int,
    epsilon: float,
    outside: Literal["refuse", "clip"] = ...,
    holdout: float = ...,
    batch: int | None = ...,
    outstanding: int = ...,
    learning_rate_scale: float = ...,
) -> DPHTINFExperts: ...
@overload
def policy(
    name: Literal["dp-imed"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    holdout: float = ...,
    explore: float = ...,
    batch_ratio: float | None = ...,
    first_batch: float | None = ...,
    index: Literal["paper", "exact", "careful"] = ...,
    batches: Literal["ratio", "need"] = ...,
    horizon: int = ...,
) -> DPIMED: ...
@overload
def policy(
    name: Literal["dp-klucb"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    holdout: float = ...,
    explore: float = ...,
    batch_ratio: float = ...,
    first_batch: float | None = ...,
    horizon: int = ...,
) -> DPKLUCB: ...
@overload
def policy(
    name: Literal["dp-lin-ts"],
    /,
    *,
    arms: int | Sequence[str],
    features: int | Sequence[str],
    epsilon: float,
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    disjoint: bool = ...,
    feature_bound: float = ...,
    long_features: Literal["refuse", "clip"] = ...,
    parameter_bound: float = ...,
    ridge: float | None = ...,
    radius_scale: float = ...,
    failure_probability: float = ...,
    outstanding: int = ...,
    delta: float = ...,
    first_episode: int | None = ...,
    episode_growth: float = ...,
    horizon: int = ...,
) -> DPLinTS: ...
@overload
def policy(
    name: Literal["dp-linucb"],
    /,
    *,
    arms: int | Sequence[str],
    features: int | Sequence[str],
    epsilon: float,
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    disjoint: bool = ...,
    feature_bound: float = ...,
    long_features: Literal["refuse", "clip"] = ...,
    parameter_bound: float = ...,
    ridge: float | None = ...,
    radius_scale: float = ...,
    failure_probability: float = ...,
    outstanding: int = ...,
    delta: float = ...,
    first_episode: int | None = ...,
    episode_growth: float = ...,
    horizon: int = ...,
) -> DPLinUCB: ...
@overload
def policy(
    name: Literal["dp-se"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    holdout: float = ...,
    explore: float = ...,
    horizon: int | None = ...,
    failure_probability: float | None = ...,
    radius_scale: float = ...,
) -> DPSE: ...
@overload
def policy(
    name: Literal["dp-tsallis-inf"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    horizon: int,
    outside: Literal["refuse", "clip"] = ...,
    holdout: float = ...,
    batch: int | None = ...,
    outstanding: int = ...,
    learning_rate_scale: float = ...,
) -> DPTsallisINF: ...
@overload
def policy(
    name: Literal["dp-ucb"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    radius_scale: float = ...,
    horizon: int = ...,
) -> DPUCB: ...
@overload
def policy(
    name: Literal["dp-ucb-bound"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    radius_scale: float = ...,
    horizon: int = ...,
) -> DPUCBBound: ...
@overload
def policy(
    name: Literal["dp-ucb-int"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    delta: float,
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    v: float = ...,
    radius_scale: float = ...,
    horizon: int = ...,
) -> DPUCBInt: ...
@overload
def policy(
    name: Literal["dpr-adaptive-ucb"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    holdout: float = ...,
    explore: float = ...,
    level_share: float = ...,
    first_batch: float | None = ...,
    radius_scale: float = ...,
    horizon: int = ...,
) -> DPRAdaptiveUCB: ...
@overload
def policy(
    name: Literal["dpr-batch-ucb"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    moment_order: float,
    moment_bound: float,
    holdout: float = ...,
    explore: float = ...,
    horizon: int | None = ...,
    contamination: float = ...,
    failure_probability: float | None = ...,
    radius_scale: float = ...,
    first_batch: int | None = ...,
    mean_range: float | None = ...,
) -> DPRBatchUCB: ...
@overload
def policy(
    name: Literal["dpr-se"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    moment_order: float,
    moment_bound: float,
    holdout: float = ...,
    explore: float = ...,
    horizon: int | None = ...,
    failure_probability: float | None = ...,
    radius_scale: float = ...,
    mean_range: float | None = ...,
) -> DPRSE: ...
@overload
def policy(
    name: Literal["dpr-ucb"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    horizon: int,
    moment_order: float,
    moment_bound: float,
    radius_scale: float = ...,
    mean_range: float | None = ...,
) -> DPRUCB: ...
@overload
def policy(
    name: Literal["exp3"],
    /,
    *,
    arms: int | Sequence[str],
    loss_noise: float = ...,
    learning_rate_scale: float = ...,
    outstanding: int = ...,
    horizon: int | None = ...,
    eta: float | None = ...,
    gamma: float | None = ...,
) -> Exp3: ...
@overload
def policy(
    name: Literal["exp4"],
    /,
    *,
    arms: int | Sequence[str],
    experts: int,
    horizon: int,
    mixing: float = ...,
    learning_rate_scale: float = ...,
    outstanding: int = ...,
) -> Exp4: ...
@overload
def policy(
    name: Literal["ftpl"],
    /,
    *,
    arms: int | Sequence[str],
    horizon: int,
    loss_noise: float = ...,
    learning_rate_scale: float = ...,
    outstanding: int = ...,
    eta: float | None = ...,
    resamples: int | None = ...,
) -> FTPL: ...
@overload
def policy(
    name: Literal["gdp-elim-new"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    horizon: int,
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    holdout: float = ...,
    explore: float = ...,
    delta: float = ...,
    tight_delta: bool = ...,
) -> GDPElimNew: ...
@overload
def policy(
    name: Literal["htinf"],
    /,
    *,
    arms: int | Sequence[str],
    loss_noise: float = ...,
    learning_rate_scale: float = ...,
    outstanding: int = ...,
    moment_order: float = ...,
    sigma: float | None = ...,
    horizon: int = ...,
) -> HTINF: ...
@overload
def policy(
    name: Literal["imed"],
    /,
    *,
    arms: int | Sequence[str],
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    horizon: int = ...,
) -> IMED: ...
@overload
def policy(
    name: Literal["kl-ucb"],
    /,
    *,
    arms: int | Sequence[str],
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    c: float = ...,
    horizon: int = ...,
) -> KLUCB: ...
@overload
def policy(
    name: Literal["lazy-dp-ts"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    holdout: float = ...,
    explore: float = ...,
    horizon: int = ...,
) -> LazyDPTS: ...
@overload
def policy(
    name: Literal["lazy-dp-ucb"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    holdout: float = ...,
    explore: float = ...,
    radius_scale: float = ...,
    horizon: int = ...,
) -> LazyDPUCB: ...
@overload
def policy(
    name: Literal["ldp-exp3"],
    /,
    *,
    arms: int | Sequence[str],
    horizon: int,
    epsilon: float,
    outside: Literal["refuse", "clip"] = ...,
    learning_rate_scale: float = ...,
    outstanding: int = ...,
) -> LDPExp3: ...
@overload
def policy(
    name: Literal["ldp-exp4"],
    /,
    *,
    arms: int | Sequence[str],
    experts: int,
    horizon: int,
    epsilon: float,
    outside: Literal["refuse", "clip"] = ...,
    learning_rate_scale: float = ...,
    outstanding: int = ...,
) -> LDPExp4: ...
@overload
def policy(
    name: Literal["ldp-linucb"],
    /,
    *,
    arms: int | Sequence[str],
    features: int | Sequence[str],
    epsilon: float,
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    disjoint: bool = ...,
    feature_bound: float = ...,
    long_features: Literal["refuse", "clip"] = ...,
    parameter_bound: float = ...,
    ridge: float = ...,
    radius_scale: float = ...,
    failure_probability: float = ...,
    outstanding: int = ...,
    horizon: int = ...,
) -> LDPLinUCB: ...
@overload
def policy(
    name: Literal["ldp-ucb-bernoulli"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    radius_scale: float = ...,
    horizon: int = ...,
) -> LDPUCBBernoulli: ...
@overload
def policy(
    name: Literal["ldp-ucb-laplace"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    radius_scale: float = ...,
    horizon: int = ...,
) -> LDPUCBLaplace: ...
@overload
def policy(
    name: Literal["ldpr-batch-ucb"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    moment_order: float,
    moment_bound: float,
    holdout: float = ...,
    explore: float = ...,
    horizon: int | None = ...,
    contamination: float = ...,
    failure_probability: float | None = ...,
    radius_scale: float = ...,
    first_batch: int | None = ...,
) -> LDPRBatchUCB: ...
@overload
def policy(
    name: Literal["ldpr-se"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    moment_order: float,
    moment_bound: float,
    holdout: float = ...,
    explore: float = ...,
    horizon: int | None = ...,
    failure_probability: float | None = ...,
    radius_scale: float = ...,
    mean_range: float | None = ...,
) -> LDPRSE: ...
@overload
def policy(
    name: Literal["lin-ts"],
    /,
    *,
    arms: int | Sequence[str],
    features: int | Sequence[str],
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    disjoint: bool = ...,
    feature_bound: float = ...,
    long_features: Literal["refuse", "clip"] = ...,
    parameter_bound: float = ...,
    ridge: float = ...,
    radius_scale: float = ...,
    failure_probability: float = ...,
    outstanding: int = ...,
    exploration: Literal["usual", "proved"] = ...,
    horizon: int = ...,
) -> LinTS: ...
@overload
def policy(
    name: Literal["linucb"],
    /,
    *,
    arms: int | Sequence[str],
    features: int | Sequence[str],
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    disjoint: bool = ...,
    feature_bound: float = ...,
    long_features: Literal["refuse", "clip"] = ...,
    parameter_bound: float = ...,
    ridge: float = ...,
    radius_scale: float = ...,
    failure_probability: float = ...,
    outstanding: int = ...,
    horizon: int = ...,
) -> LinUCB: ...
@overload
def policy(
    name: Literal["prae-central"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    moment_order: float,
    mean_range: float,
    holdout: float = ...,
    explore: float = ...,
    moment_bound: float = ...,
    contamination: float = ...,
    horizon: int | None = ...,
    failure_probability: float | None = ...,
    radius_scale: float = ...,
    threshold: float | None = ...,
    first_phase: Literal["uniform", "each-round", "greedy", "half-greedy"] = ...,
) -> PRAECentral: ...
@overload
def policy(
    name: Literal["prae-raw"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    moment_order: float,
    holdout: float = ...,
    explore: float = ...,
    moment_bound: float = ...,
    contamination: float = ...,
    horizon: int | None = ...,
    failure_probability: float | None = ...,
    radius_scale: float = ...,
    threshold: float | None = ...,
    first_phase: Literal["uniform", "each-round", "greedy", "half-greedy"] = ...,
    radius: Literal["mixed", "paper"] = ...,
) -> PRAERaw: ...
@overload
def policy(
    name: Literal["private-ucb"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    horizon: int,
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    failure_probability: float = ...,
    split_epsilon: bool = ...,
    radius_scale: float = ...,
) -> PrivateUCB: ...
@overload
def policy(
    name: Literal["privatised"],
    /,
    *,
    arms: int | Sequence[str],
    epsilon: float,
    base: Policy,
    outside: Literal["refuse", "clip"] = ...,
    holdout: float = ...,
    batch: int | None = ...,
    outstanding: int = ...,
    horizon: int | None = ...,
) -> Privatised: ...
@overload
def policy(
    name: Literal["privatised-experts"],
    /,
    *,
    arms: int | Sequence[str],
    experts: int,
    base: Policy,
    epsilon: float,
    outside: Literal["refuse", "clip"] = ...,
    holdout: float = ...,
    batch: int | None = ...,
    horizon: int | None = ...,
) -> PrivatisedExperts: ...
@overload
def policy(
    name: Literal["random"],
    /,
    *,
    arms: int | Sequence[str],
    horizon: int = ...,
) -> AtRandom: ...
@overload
def policy(
    name: Literal["robust-ucb"],
    /,
    *,
    arms: int | Sequence[str],
    horizon: int,
    moment_order: float,
    moment_bound: float,
    estimator: Literal["truncated-mean", "median-of-means", "catoni"] = ...,
    radius_scale: float = ...,
    refresh: float = ...,
) -> RobustUCB: ...
@overload
def policy(
    name: Literal["successive-elimination"],
    /,
    *,
    arms: int | Sequence[str],
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    horizon: int | None = ...,
    failure_probability: float | None = ...,
    radius_scale: float = ...,
) -> SuccessiveElimination: ...
@overload
def policy(
    name: Literal["thompson-beta"],
    /,
    *,
    arms: int | Sequence[str],
    reward_range: tuple[float, float] = ...,
    outside: Literal["refuse", "clip"] = ...,
    horizon: int = ...,
) -> ThompsonBeta: ...
@overload
def policy(
    name: Literal["thompson-gauss"],
    /,
    *,
    arms: int | Sequence[str],
    radius_scale: float = ...,
    horizon: int = ...,
) -> ThompsonGauss: ...
@overload
def policy(
    name: Literal["tsallis-inf"],
    /,
    *,
    arms: int | Sequence[str],
    loss_noise: float = ...,
    learning_rate_scale: float = ...,
    outstanding: int = ...,
    sigma: float | None = ...,
    horizon: int = ...,
) -> TsallisINF: ...
@overload
def policy(
    name: Literal["ucb1"],
    /,
    *,
    arms: int | Sequence[str],
    radius_scale: float = ...,
    horizon: int = ...,
) -> UCB1: ...
@overload
def policy(name: PolicyName, /, **parameters: Any) -> Policy: ...
