"""Environments of losses: what is drawn, what the best arm or expert lost, and bad input."""

from __future__ import annotations

import numpy as np
import pytest

import balaclava as bl
from balaclava.errors import ContextError, IncompatibleError, ParameterError

RNG = np.random.default_rng(7)
TABLE = RNG.random((500, 3))
CHANGING = RNG.dirichlet(np.ones(3), (500, 4))


def played(world: bl.Environment, checkpoints: int = 10) -> bl.Results:
    return bl.simulate(
        bl.policy("exp3", arms=world.arms),
        world,
        horizon=500,
        repetitions=3,
        seed=1,
        checkpoints=checkpoints,
    )


def test_regret_in_hindsight_is_exact_at_every_checkpoint() -> None:
    world = bl.environment("losses", losses=TABLE)
    rounds = np.array([1, 7, 250, 500])
    assert np.allclose(world.arm_losses(rounds), np.cumsum(TABLE, axis=0)[rounds - 1])
    totals = np.array([3.0, 4.0, 5.0, 6.0])
    best = np.cumsum(TABLE, axis=0)[rounds - 1].min(axis=1)
    assert np.allclose(world.regret(rounds, np.zeros((4, 3)), totals), totals - best)


def test_own_losses_are_what_was_drawn() -> None:
    """With losses that do not depend on the round, own losses follow from the pulls."""
    world = bl.environment("losses", losses=np.tile([0.25, 0.5, 1.0], (500, 1)))
    results = played(world)
    regret = results.pulls("exp3") @ [0.0, 0.25, 0.75]
    assert np.allclose(results.final_regret("exp3"), regret)


def test_switching_is_its_table_without_storing_it() -> None:
    world = bl.environment(
        "switching", horizon=500, switch=123, before=[0.5, 1, 0.2], after=[0.5, 0, 1]
    )
    stored = bl.environment("losses", losses=world.loss_rows(0, 500))
    assert np.allclose(world.means, stored.means)
    assert np.allclose(played(world).regret("exp3"), played(stored).regret("exp3"))
    huge = bl.environment(
        "switching", horizon=10**12, switch=10**11, before=[0.5, 1], after=[0.5, 0]
    )
    assert huge.arm_losses(np.array([10**12])).tolist() == [[5e11, 1e11]]


def test_stochastic_losses_count_gaps() -> None:
    world = bl.environment("stochastic-losses", means=[0.3, 0.2, 0.9])
    results = played(world)
    assert np.allclose(results.final_regret("exp3"), results.pulls("exp3") @ [0.1, 0.0, 0.7])


@pytest.mark.parametrize("advice", [CHANGING[0], CHANGING])
def test_the_best_expert_is_found_in_hindsight(advice: np.ndarray) -> None:
    world = bl.environment("advice", losses=TABLE, advice=advice)
    followed = np.broadcast_to(advice, (500, 4, 3)) @ TABLE[:, :, None]
    expected = np.cumsum(followed[:, :, 0], axis=0)
    rounds = np.array([1, 100, 500])
    assert np.allclose(world.expert_losses(rounds), expected[rounds - 1])
    assert (world.experts, world.arms, world.rounds) == (4, 3, 500)
    for t in (1, 77, 500):
        given = world.advise(world.constants(), t)
        assert np.array_equal(given, advice if advice.ndim == 2 else advice[t - 1])


def test_advice_over_an_environment_stores_no_table() -> None:
    inner = bl.environment("stochastic-losses", means=[0.2, 0.4, 0.6])
    world = bl.environment("advice", losses=inner, advice=np.eye(3)[[2, 1]])
    assert world.rounds is None
    results = played(world)
    own = results.pulls("exp3") @ [0.2, 0.4, 0.6]
    assert np.allclose(results.final_regret("exp3"), own - 500 * 0.4)
    again = bl.environment("advice", **world.parameters)
    assert again == world


@pytest.mark.parametrize(
    ("advice", "said"),
    [
        ([[1, 0]], "2 columns, not 3"),
        ([[1, 0, 0.1]], "expert 0 does not sum to 1"),
        ([[1, 0, 0], [1.5, -0.5, 0]], "expert 1 must hold probabilities"),
        ([[np.nan, 0.5, 0.5]], "expert 0 must hold probabilities"),
        ([1, 0, 0], "one row per expert"),
        ("good", "an array of numbers"),
        (CHANGING[:499], "for 499 rounds"),
    ],
)
def test_bad_advice_is_named(advice: object, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        bl.environment("advice", losses=TABLE, advice=advice)


def test_bad_losses_are_named_without_their_value() -> None:
    for wrong in (1.25, -0.375):
        table = TABLE.copy()
        table[3, 1] = wrong
        with pytest.raises(ParameterError, match="row and column 3, 1") as raised:
            bl.environment("losses", losses=table)
        assert str(abs(wrong)) not in str(raised.value)
    rewards = {"name": "bernoulli", "means": [0.5, 0.5]}
    with pytest.raises(ParameterError, match="returns rewards"):
        bl.environment("advice", losses=rewards, advice=[[1, 0]])
    with pytest.raises(ParameterError, match="after the last round"):
        bl.environment("switching", horizon=10, switch=11, before=[0, 1], after=[1, 0])


def test_losses_and_rewards_are_kept_apart() -> None:
    losses = bl.environment("losses", losses=TABLE)
    with pytest.raises(IncompatibleError, match="learns from rewards, but losses gives losses"):
        bl.simulate(bl.policy("ucb1", arms=3), losses, horizon=10, repetitions=1, seed=1)
    rewards = bl.environment("bernoulli", means=[0.1, 0.2, 0.3])
    with pytest.raises(IncompatibleError, match="learns from losses, but bernoulli gives rewards"):
        bl.simulate(bl.policy("exp3", arms=3), rewards, horizon=10, repetitions=1, seed=1)


def test_a_context_that_is_not_wanted_is_refused() -> None:
    with pytest.raises(ContextError, match="takes no context"):
        bl.policy("ucb1", arms=3).agent(seed=1).ask([[1, 0, 0]])
