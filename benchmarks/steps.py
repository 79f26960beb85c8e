"""The time of one simulated step, against a hand-written loop for that policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

import balaclava as bl
import hand_loops
import loss_hand_loops as of_losses
import private_hand_loops as private
from balaclava.policies.base import POLICIES
from balaclava.policies.pooled_policies import PooledPolicy
from balaclava.privacy.randomness import seeded
from balaclava.testing.examples import examples
from measuring import Line, in_turns, ratios

# The two problems of Wang and Zhu (2024): few arms and many.
PROBLEMS = {9: np.linspace(0.3, 0.7, 9), 101: np.linspace(0.3, 0.7, 101)}
LIMIT, PHASED_LIMIT = 1.3, 40.0
# Policies that also draw a Beta variable for each arm and round, as thompson-beta does.
DRAWING_LIMIT = {"lazy-dp-ts": 400.0}
SEED = 1


class Rival(NamedTuple):
    """A policy with a hand-written loop."""

    name: str
    loop: Callable[..., np.ndarray]
    parameters: Mapping[str, Any] = MappingProxyType({})
    constants: tuple[str, ...] = ()  # of the policy, which the loop is given

    def policy(self, arms: int) -> bl.Policy:
        return bl.policy(self.name, arms=arms, **self.parameters)

    def play(self, arms: int, rounds: int) -> np.ndarray:
        """The pulls by the hand-written loop, on the streams of `simulate`."""
        constants = self.policy(arms).constants()
        streams = seeded(SEED, 0, 0), seeded(SEED, 0, 1)
        arguments = [getattr(constants, name) for name in self.constants]
        return self.loop(PROBLEMS[arms], rounds, *streams, *arguments)


PRIVATE = {"epsilon": 1.0, "delta": 0.01}
RIVALS = [
    Rival("ucb1", hand_loops.ucb1),
    Rival("thompson-gauss", hand_loops.thompson_gauss),
    Rival("thompson-beta", hand_loops.thompson_beta),
    Rival("kl-ucb", hand_loops.kl_ucb),
    Rival("imed", hand_loops.imed),
    Rival("dp-ftpl-gauss", private.dp_ftpl_gauss, PRIVATE, ("start",)),
    Rival("dp-ftpl-beta", private.dp_ftpl_beta, {"epsilon": 5.0, "delta": 0.1}, ("start",)),
    Rival(
        "dp-ftpl-new",
        private.dp_ftpl_new,
        {**PRIVATE, "horizon": 10**6},
        ("epsilon", "delta", "log_horizon", "noise_reach"),
    ),
    Rival("dp-ucb", private.dp_ucb, {"epsilon": 1.0}, ("epsilon",)),
    Rival(
        "private-ucb",
        private.private_ucb,
        {"epsilon": 1.0, "horizon": 10**6},
        ("horizon", "tree_epsilon", "noise_margin"),
    ),
    Rival(
        "dpr-ucb",
        private.dpr_ucb,
        {
            "epsilon": 1.0,
            "horizon": 10**7,
            "moment_order": 1.9,
            "moment_bound": 2.0,
            "radius_scale": 0.02,
        },
        ("horizon", "epsilon", "root", "level", "bonus"),
    ),
    Rival("ldp-ucb-laplace", private.ldp_ucb_laplace, {"epsilon": 1.0}, ("epsilon",)),
    Rival("ldp-ucb-bernoulli", private.ldp_ucb_bernoulli, {"epsilon": 1.0}, ("epsilon",)),
    Rival("exp3", of_losses.exp3, {"horizon": 10**6}, ("eta", "gamma")),
    Rival(
        "dp-exp3",
        of_losses.dp_exp3,
        {"horizon": 10**6, "epsilon": 0.5},
        ("epsilon", "batch", "base"),
    ),
]


def problem(policy: bl.Policy) -> bl.Environment:
    """Arms with these means, with rewards or losses as the policy needs."""
    kind = "stochastic-losses" if policy.rewards == "loss" else "bernoulli"
    return bl.environment(kind, means=PROBLEMS[policy.arms])


def simulate(policy: bl.Policy, rounds: int, **changes: Any) -> bl.Results:
    """One repetition on one thread."""
    world = problem(policy)
    options = {"repetitions": 1, "seed": SEED, "workers": 1, **changes}
    return bl.simulate(policy, world, horizon=rounds, **options)


def sequential(quick: bool) -> list[Line]:
    """Each policy with a hand-written loop, at 9 and at 101 arms."""
    lines = []
    for rival in RIVALS:
        for arms in PROBLEMS:
            rounds = (100_000 if quick else 1_000_000) * 9 // arms
            lines.append(against_its_loop(rival, arms, rounds, repeats=3 if quick else 9))
    return lines


def against_its_loop(rival: Rival, arms: int, rounds: int, repeats: int) -> Line:
    policy = rival.policy(arms)
    seconds = in_turns(
        {
            "ours": lambda: simulate(policy, rounds),
            "by hand": lambda: rival.play(arms, rounds),
        },
        repeats,
    )
    return Line(
        f"{rival.name}, {arms} arms",
        _step(seconds["ours"], rounds),
        f"{_step(seconds['by hand'], rounds)} by hand",
        *ratios(seconds["ours"], seconds["by hand"]),
        "<=",
        LIMIT,
    )


def phased(quick: bool) -> list[Line]:
    """Policies that play whole phases, at 9 arms: nanoseconds, which depend on the machine."""
    rounds, repeats = (100_000, 3) if quick else (1_000_000, 9)
    baseline = RIVALS[0]
    contenders: dict[str, Callable[[], object]] = {
        name: partial(simulate, usual(name, rounds), rounds) for name in phased_names()
    }
    seconds = in_turns({"by hand": lambda: baseline.play(9, rounds), **contenders}, repeats)
    nanoseconds = {name: np.array(times) / rounds * 1e9 for name, times in seconds.items()}
    reference = f"{_step(seconds['by hand'], rounds)} ucb1 by hand"
    return [
        Line(
            f"{name}, 9 arms, ns a step",
            _step(seconds[name], rounds),
            reference,
            float(np.median(nanoseconds[name])),
            nanoseconds[name].min(),
            nanoseconds[name].max(),
            "<=",
            DRAWING_LIMIT.get(name, PHASED_LIMIT),
        )
        for name in contenders
    ]


def phased_names() -> list[str]:
    """The policies that play whole phases and accept Bernoulli rewards."""
    return [
        e.name
        for e in bl.list_policies()
        if issubclass(e.policy, PooledPolicy) and e.rewards != "loss"
    ]


def usual(name: str, rounds: int) -> bl.Policy:
    """The policy of a name with 9 arms and the conformance suite's first example."""
    cls = POLICIES.classes()[name]
    changes = {"arms": 9, **({"horizon": rounds} if "horizon" in cls.annotations else {})}
    return cls.create({**examples(cls)[0].parameters, **changes})


def _step(seconds: list[float], rounds: int) -> str:
    return f"{min(seconds) / rounds * 1e9:.1f} ns"
