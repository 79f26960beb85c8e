"""Every family: its law, its moments, and what it refuses."""

from __future__ import annotations

import copy
import itertools
import json
import math
import pickle

import numpy as np
import pytest
from scipy import integrate, stats

import balaclava as bl
from balaclava._core.kernels import compiled
from balaclava.errors import IncompatibleError, ParameterError
from balaclava.privacy.randomness import seeded
from tests.environments.families import (
    CAUCHY,
    GAUSSIAN,
    WORLDS,
    contaminate,
    draws,
    each_world,
    make_sample,
)


@each_world
def test_compiled_draws_are_the_interpreted_ones(world):
    sample = compiled(make_sample, world.draw)
    for arm in range(2):
        rewards = sample(world.constants(), arm, 40, seeded(3))
        np.testing.assert_array_equal(rewards, draws(world, arm, 40, seed=3))


@each_world
def test_every_arm_uses_up_the_same_random_numbers(world):
    ends = set()
    for arm in range(world.arms):
        rng, constants = seeded(9), world.constants()
        for t in range(1, 41):
            world.draw(constants, t, arm, rng)
        ends.add(rng.random())
    assert len(ends) == 1


LAWS = [
    (WORLDS[1], stats.norm(2.0, 3.0)),
    (WORLDS[2], stats.pareto(2.5, scale=1.5 * 3.0 / 2.5)),
    (WORLDS[3], stats.t(2.5, loc=4.0, scale=0.7)),
    (WORLDS[4], stats.lognorm(0.8, scale=3.0 * math.exp(-0.32))),
]


@pytest.mark.statistical
@pytest.mark.parametrize(("world", "law"), LAWS, ids=lambda thing: getattr(thing, "name", ""))
def test_draws_follow_the_law(world, law):
    # A right sampler fails with probability 1e-6 over the choice of the (fixed) seed.
    sample = draws(world, 1, 20_000, seed=11)
    assert stats.kstest(sample, law.cdf).pvalue > 1e-6
    assert law.mean() == pytest.approx(world.means[1], rel=1e-12)
    assert sample.min() >= world.reward_range[0]


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("world", "value", "chance"),
    [(WORLDS[0], 1.0, 0.9), (WORLDS[5], -2.0, 0.6), (contaminate(WORLDS[0], 0.3), 50.0, 0.3)],
)
def test_draws_have_the_chance_of_each_value(world, value, chance):
    # Two-sided exact binomial test at 1e-6, fixed seed.
    hits = int((draws(world, 1, 20_000, seed=2) == value).sum())
    assert stats.binomtest(hits, 20_000, chance).pvalue > 1e-6


def test_a_table_gives_its_rows():
    world = bl.environment("table", rewards=[[1, 2], [3, 4], [5, 6]])
    assert draws(world, 1, 3).tolist() == [2.0, 4.0, 6.0]
    assert (world.rounds, world.arms) == (3, 2)
    assert world.means.tolist() == [3.0, 4.0]
    with pytest.raises(IncompatibleError, match="3 rounds"):
        bl.simulate(bl.policy("ucb1", arms=2), world, horizon=4, repetitions=1, seed=0)


def test_the_moments_of_the_hard_instance():
    gap, v = 0.1, 0.5
    g = (5 * gap) ** (1 / v)
    chances = [g ** (1 + v) / 2, g ** (1 + v) / 2 - gap * g]
    world = bl.environment("two-point", values=[1 / g, 1 / g], probabilities=chances)
    assert world.means == pytest.approx([2.5 * gap, 1.5 * gap])
    assert world.moments(1 + v) == pytest.approx([0.5, 0.3])
    variances = [p * (1 - p) / g**2 for p in chances]
    assert world.moments(2, central=True) == pytest.approx(variances)


ORDERS = (0.3, 1.5, 2.4, *(pytest.param(whole, marks=pytest.mark.slow) for whole in (1.0, 2.0)))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("central", [False, True])
@pytest.mark.parametrize(("world", "law"), LAWS, ids=lambda thing: getattr(thing, "name", ""))
def test_moments_are_integrals_of_the_density(world, law, central, order):
    """By parts, E|X - c|^k is the integral over y of P(|X - c| > y^(1/k)): another way round."""
    centre = world.means[1] if central else 0.0

    def outside(log_y):
        y = math.exp(log_y)
        return (law.sf(centre + y) + law.cdf(centre - y)) * order * y**order

    # In log y, from where y^k is 1e-13 to where the heaviest tail here has left 1e-11.
    least = law.support()[0]
    kinks = [math.log(abs(least - centre))] if math.isfinite(least) and least != centre else []
    edges = sorted([-30 / order, *np.arange(-8.0, 12.0, 0.5), 60.0, 250.0, *kinks])
    expected = sum(
        integrate.quad(outside, a, b, epsabs=1e-14, epsrel=1e-11)[0]
        for a, b in itertools.pairwise(edges)
    )
    assert world.moments(order, central=central)[1] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gaussian", {"means": [3.0], "scales": 2.0}),
        ("lognormal", {"means": [3.0], "sigma": 0.3}),
        ("lognormal", {"means": [0.1], "sigma": 2.5}),
        ("student-t", {"means": [-1000.0], "degrees": 8.0, "scale": 0.01}),
        ("student-t", {"means": [2.0], "degrees": 5.5}),
        ("pareto", {"means": [2.0], "shape": 4.5}),
    ],
)
def test_second_and_fourth_moments_agree_with_the_textbook(name, parameters):
    world = bl.environment(name, **parameters)
    law = {
        "gaussian": lambda: stats.norm(3, 2),
        "lognormal": lambda: stats.lognorm(
            world.sigma, scale=world.means[0] * math.exp(-(world.sigma**2) / 2)
        ),
        "student-t": lambda: stats.t(world.degrees, world.means[0], world.scale),
        "pareto": lambda: stats.pareto(4.5, scale=3.5 * 2 / 4.5),
    }[name]()
    variance, kurtosis = (float(x) for x in law.stats("vk"))
    mean = float(world.means[0])
    assert world.moment(2, central=True) == pytest.approx(variance, rel=1e-9)
    assert world.moment(4, central=True) == pytest.approx((kurtosis + 3) * variance**2, rel=1e-8)
    assert world.moment(2) == pytest.approx(variance + mean**2, rel=1e-9)


def test_moments_that_do_not_exist_are_infinite():
    for world, limit in ((WORLDS[2], 2.5), (WORLDS[3], 2.5)):
        for central in (False, True):
            below = world.moments(limit - 1e-3, central=central)
            assert np.isfinite(below).all()
            assert np.isinf(world.moments(limit, central=central)).all()
            assert np.isinf(world.moments(limit + 3, central=central)).all()


@pytest.mark.parametrize("order", [0, -1, math.nan, math.inf, "2"])
@each_world
def test_the_order_of_a_moment_is_positive(world, order):
    with pytest.raises(ParameterError, match="order"):
        world.moments(order)


def test_moments_of_data_are_averages():
    rewards = np.array([[1.0, -2.0], [3.0, 0.0], [-4.0, 5.0]])
    table = bl.environment("table", rewards=rewards)
    empirical = bl.environment("empirical", samples=[rewards[:, 0], rewards[:, 1]])
    for world in (table, empirical):
        assert world.means == pytest.approx([0.0, 1.0])
        assert world.moments(1.5) == pytest.approx((np.abs(rewards) ** 1.5).mean(axis=0))
        assert world.moments(2, central=True) == pytest.approx(rewards.var(axis=0))
        assert world.reward_range == (-4.0, 5.0)


def test_ranges_include_what_can_be_drawn_and_no_more():
    coin = WORLDS[0]
    assert contaminate(coin, 0.2).reward_range == (0.0, 50.0)
    assert contaminate(coin, 0.0).reward_range == (0.0, 1.0)
    assert contaminate(coin, 0.2, GAUSSIAN).reward_range == (-math.inf, math.inf)
    assert WORLDS[2].reward_range == (pytest.approx(0.3), math.inf)
    sure = bl.environment("two-point", values=[3.0, 9.0], probabilities=[1.0, 1.0])
    assert sure.reward_range == (3.0, 9.0)
    never = bl.environment("two-point", values=[3.0, 9.0], probabilities=[0.5, 0.0])
    assert never.reward_range == (0.0, 3.0)


@each_world
def test_parameters_rebuild_an_equal_environment(world):
    text = json.dumps(world.parameters)
    again = bl.environment(world.name, **json.loads(text))
    assert again == world
    assert hash(again) == hash(world)
    np.testing.assert_array_equal(draws(again, 1, 20), draws(world, 1, 20))
    for clone in (copy.deepcopy(world), pickle.loads(pickle.dumps(world))):
        assert clone == world


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("bernoulli", {"means": [0.5, 1.2]}, r"means\[1\] = 1.2"),
        ("pareto", {"means": [-1.0], "shape": 2.0}, r"means\[0\] = -1.0"),
        ("pareto", {"means": [1.0], "shape": 1.0}, "shape"),
        ("lognormal", {"means": [0.0], "sigma": 1.0}, r"means\[0\]"),
        ("lognormal", {"means": [1.0], "sigma": 0.0}, "sigma"),
        ("gaussian", {"means": [math.nan]}, r"means\[0\] = nan"),
        ("gaussian", {"means": [0.0, 1.0], "scales": [1.0]}, "one per arm"),
        ("gaussian", {"means": [0.0, 1.0], "scales": -1.0}, "scales"),
        ("gaussian", {"means": [0.0], "scales": "wide"}, "scales"),
        ("student-t", {"means": [0.0], "degrees": 1.0}, "degrees"),
        ("student-t", {"means": [0.0], "degrees": 2.0, "scale": 0.0}, "scale"),
        ("two-point", {"values": [1.0, 2.0], "probabilities": [0.1]}, "2 values"),
        ("two-point", {"values": [1.0], "probabilities": [1.1]}, r"probabilities\[0\]"),
        ("empirical", {}, "either `samples` or `path`"),
        ("empirical", {"samples": [[1.0]], "path": "log.csv"}, "either"),
        ("empirical", {"samples": []}, "at least one arm"),
        ("empirical", {"samples": "abc"}, "type str"),
        ("empirical", {"samples": {"a": [1.0], "b": []}}, r"samples\['b'\]"),
        ("empirical", {"samples": {1: [1.0], "1": [1.0]}}, "two labels"),
    ],
)
def test_what_does_not_fit_the_family_is_refused(name, parameters, message):
    with pytest.raises(ParameterError, match=message):
        bl.environment(name, **parameters)


def test_one_scale_is_the_same_as_one_for_each_arm():
    one = bl.environment("gaussian", means=[0.0, 1.0], scales=2)
    assert one == bl.environment("gaussian", means=[0.0, 1.0], scales=[2.0, 2.0])


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        ([[0.777, "x"]], "row and column 0, 1"),
        ([[0.777], [math.nan]], "row and column 1, 0"),
        ([[0.777, 1], [2]], "one row per round"),
        ([0.777], "shape"),
        (0.777, "shape"),
        ([], "shape"),
    ],
)
def test_neither_errors_nor_repr_show_a_reward(rewards, message):
    with pytest.raises(ParameterError, match=message) as caught:
        bl.environment("table", rewards=rewards)
    assert "777" not in str(caught.value)
    with pytest.raises(ParameterError) as caught:
        bl.environment("empirical", samples=[[0.777, "x"]])
    assert "777" not in str(caught.value)
    table = bl.environment("table", rewards=[[0.777]])
    for world in (table, bl.environment("empirical", samples=[[0.777]]), contaminate(table)):
        assert "777" not in repr(world)


@pytest.mark.statistical
@pytest.mark.parametrize(
    "world",
    [
        bl.environment("gaussian", means=[0.0, 1.0]),
        contaminate(bl.environment("pareto", means=[0.5, 2.0], shape=3.0), 0.05),
        contaminate(bl.environment("gaussian", means=[0.0, 1.0]), 0.05),
    ],
    ids=["gaussian", "contaminated-pareto", "contaminated-gaussian"],
)
def test_a_policy_learns_on_it(world):
    policy = bl.policy("ucb1", arms=2, radius_scale=2.0)
    results = bl.simulate(policy, world, horizon=2000, repetitions=10, seed=1, workers=1)
    pulls = results.pulls("ucb1")
    assert results.final_regret("ucb1") == pytest.approx(pulls[:, 0] * world.gaps[0])
    assert np.median(pulls[:, 1]) > 1000


def test_policies_that_pull_the_same_arm_see_the_same_reward():
    world = contaminate(bl.environment("student-t", means=[0.0, 0.0], degrees=2), 0.3, CAUCHY)
    constants, first, second = world.constants(), seeded(8), seeded(8)
    for t in range(1, 200):
        one = world.draw(constants, t, t % 2, first)
        other = world.draw(constants, t, (t // 3) % 2, second)
        assert one == other


@pytest.mark.parametrize("name", ["bernoulli", "stochastic-losses"])
@pytest.mark.parametrize("order", "CF")
def test_a_game_has_the_same_regret_alone_and_among_others(name, order):
    world = bl.environment(name, means=np.linspace(0.3, 0.7, 9))
    pulls = np.random.default_rng(0).multinomial(600, np.full(9, 1 / 9), 77)
    rounds, totals = np.full(77, 600), np.zeros(77)
    together = world.regret(rounds, np.array(pulls, order=order), totals)
    alone = [world.regret(rounds[:1], row[None], totals[:1])[0] for row in pulls]
    assert np.array_equal(together, alone)
