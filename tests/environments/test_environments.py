"""The families of rewards: their laws, their moments, and what they refuse."""

from __future__ import annotations

import copy
import itertools
import json
import math
import pickle

import mpmath as mp
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy import integrate, stats

import balaclava as bl
from balaclava._core.kernels import compiled
from balaclava.errors import IncompatibleError, ParameterError, UnknownNameError
from balaclava.privacy.randomness import seeded

MEANS = (0.9, 0.7, 0.5, 0.3, 0.1)
POINT = {"kind": "point", "value": 50.0}
GAUSSIAN = {"kind": "gaussian", "mean": 3.0, "scale": 2.0}
CAUCHY = {"kind": "cauchy", "location": -1.0, "scale": 0.5}


def contaminate(inner, fraction=0.2, outliers=POINT):
    return bl.environment("contaminated", inner=inner, fraction=fraction, outliers=outliers)


def worlds():
    """One of each family, with arms that differ."""
    rewards = np.random.default_rng(5).normal(size=(40, 3))
    clean = [
        bl.environment("bernoulli", means=[0.2, 0.9]),
        bl.environment("gaussian", means=[-1.0, 2.0], scales=[0.5, 3.0]),
        bl.environment("pareto", means=[0.5, 3.0], shape=2.5),
        bl.environment("student-t", means=[-1.0, 4.0], degrees=2.5, scale=0.7),
        bl.environment("lognormal", means=[0.5, 3.0], sigma=0.8),
        bl.environment("two-point", values=[10.0, -2.0], probabilities=[0.1, 0.6]),
        bl.environment("table", rewards=rewards),
        bl.environment("empirical", samples=[rewards[:7, 0], rewards[:31, 1]]),
    ]
    return [
        *clean,
        contaminate(clean[0]),
        contaminate(clean[2], outliers=CAUCHY),
        contaminate(contaminate(clean[1], outliers=GAUSSIAN), fraction=0.1),
    ]


WORLDS = worlds()
each_world = pytest.mark.parametrize("world", WORLDS, ids=lambda world: repr(world)[:60])


def draws(world, arm, count, seed=0):
    draw, constants, rng = world.draw, world.constants(), seeded(seed)
    return np.array([draw(constants, t, arm, rng) for t in range(1, count + 1)])


def make_sample(draw):
    def sample(world, arm, count, rng):
        rewards = np.empty(count)
        for i in range(count):
            rewards[i] = draw(world, i + 1, arm, rng)
        return rewards

    return sample


# Laws


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


@pytest.mark.statistical
def test_an_empirical_arm_draws_each_logged_reward_equally_often():
    world = bl.environment("empirical", samples=[[5.0], [1.0, 2.0, 3.0, 4.0, 4.0]])
    sample = draws(world, 1, 20_000, seed=4)
    counts = [(sample == value).sum() for value in (1.0, 2.0, 3.0, 4.0)]
    assert sum(counts) == 20_000
    assert stats.chisquare(counts, [4000, 4000, 4000, 8000]).pvalue > 1e-6
    assert set(draws(world, 0, 50)) == {5.0}


def test_a_table_gives_its_rows():
    world = bl.environment("table", rewards=[[1, 2], [3, 4], [5, 6]])
    assert draws(world, 1, 3).tolist() == [2.0, 4.0, 6.0]
    assert (world.rounds, world.arms) == (3, 2)
    assert world.means.tolist() == [3.0, 4.0]
    with pytest.raises(IncompatibleError, match="3 rounds"):
        bl.simulate(bl.policy("ucb1", arms=2), world, horizon=4, repetitions=1, seed=0)


@pytest.mark.statistical
def test_outliers_follow_their_law():
    clean = bl.environment("bernoulli", means=[0.5])
    for outliers, law in ((GAUSSIAN, stats.norm(3, 2)), (CAUCHY, stats.cauchy(-1, 0.5))):
        sample = draws(contaminate(clean, 0.5, outliers), 0, 20_000, seed=6)
        dirty = sample[(sample != 0.0) & (sample != 1.0)]
        assert stats.binomtest(dirty.size, 20_000, 0.5).pvalue > 1e-6
        assert stats.kstest(dirty, law.cdf).pvalue > 1e-6


def test_more_contamination_replaces_more_rewards_and_leaves_the_others():
    clean = bl.environment("gaussian", means=[0.0])
    none, some = (draws(contaminate(clean, fraction), 0, 500) for fraction in (0.0, 0.3))
    assert (none != 50.0).all()
    np.testing.assert_array_equal(some[some != 50.0], none[some != 50.0])
    assert 50 < (some == 50.0).sum() < 250


# Moments


@pytest.mark.parametrize(("v", "moment"), [(0.5, 5.594637409335428), (0.9, 8.142063093163385)])
def test_the_moments_of_the_published_instance(v, moment):
    world = bl.environment("pareto", means=MEANS, shape=1.05 + v)
    assert world.moment(1 + v) == pytest.approx(moment, rel=1e-13)
    assert world.moments(1 + v).argmax() == 0


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


@pytest.mark.parametrize(("shape", "order"), [(1.05, 1.0), (1.55, 1.5), (4.0, 2.0), (3.0, 0.2)])
def test_central_pareto_moments_to_many_digits(shape, order):
    with mp.workdps(30):
        a, k = mp.mpf(shape), mp.mpf(order)
        least = (a - 1) / a
        scaled = [0, 1, 2, 8, 32, 120]  # x = least e^{z/(a-k)}, split where x = 1, the mean
        kink = -mp.log(least) * (a - k)
        expected = mp.quad(
            lambda z: (
                abs(least * mp.exp(z / (a - k)) - 1) ** k * mp.exp(-a * z / (a - k)) * a / (a - k)
            ),
            [0, kink / 2, *(kink + z for z in scaled)],
        )
    world = bl.environment("pareto", means=[1.0], shape=shape)
    assert world.moment(order, central=True) == pytest.approx(float(expected), rel=1e-10)


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


def test_contamination_leaves_means_gaps_and_moments_clean():
    clean = bl.environment("student-t", means=[0.0, 1.0], degrees=3)
    dirty = contaminate(clean, 0.4, CAUCHY)
    np.testing.assert_array_equal(dirty.means, clean.means)
    np.testing.assert_array_equal(dirty.gaps, clean.gaps)
    np.testing.assert_array_equal(dirty.moments(2.5), clean.moments(2.5))


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


# Parameters


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


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"fraction": 1.0}, "fraction"),
        ({"fraction": -0.1}, "fraction"),
        ({"outliers": "point"}, "not a mapping"),
        ({"outliers": {}}, "kind = None"),
        ({"outliers": {"kind": ["point"]}}, "kind"),
        ({"outliers": {"kind": "point"}}, "'value' is missing"),
        ({"outliers": {"kind": "point", "value": math.nan}}, "value"),
        ({"outliers": {"kind": "point", "value": 1, "scale": 1}}, "unknown entry 'scale'"),
        ({"outliers": {"kind": "gaussian", "mean": 0, "scale": 0}}, "scale"),
        ({"inner": {"means": [0.5]}}, "`name`"),
        ({"inner": {"name": "bernoulli", "means": [2.0]}}, "bernoulli: means"),
        ({"inner": "bernoulli"}, "inner"),
        ({"inner": {"name": "stochastic-losses", "means": [0.5]}}, "returns losses"),
        ({"inner": {"name": "linear", "theta": [0.7, 0.3], "arms": 2}}, "has contexts"),
    ],
)
def test_what_cannot_contaminate_is_refused(changed, message):
    good = {"inner": WORLDS[0], "fraction": 0.1, "outliers": POINT}
    with pytest.raises(ParameterError, match=message):
        bl.environment("contaminated", **{**good, **changed})


def test_an_unknown_inner_environment_is_named():
    with pytest.raises(UnknownNameError, match="bernouli"):
        contaminate({"name": "bernouli", "means": [0.5]})


def test_what_was_given_can_change_without_harm():
    outliers, samples = dict(POINT), [[1.0, 2.0], [3.0]]
    world = contaminate({"name": "empirical", "samples": samples}, outliers=outliers)
    before = json.dumps(world.parameters)
    outliers["value"], samples[0][0] = -1.0, 99.0
    world.parameters["outliers"]["value"] = 7.0
    assert json.dumps(world.parameters) == before
    assert world == contaminate({"name": "empirical", "samples": [[1.0, 2.0], [3.0]]})


def test_one_scale_is_the_same_as_one_for_each_arm():
    one = bl.environment("gaussian", means=[0.0, 1.0], scales=2)
    assert one == bl.environment("gaussian", means=[0.0, 1.0], scales=[2.0, 2.0])


# Logs

LOG = "when,arm,reward\n9,10,0.5\n9,2,1\n9,10,1.5\n9,2,-3\n9,2,0\n"


def write(tmp_path, text):
    path = tmp_path / "log.csv"
    path.write_text(text)
    return path


def test_csv_and_parquet_are_read_alike(tmp_path):
    csv = write(tmp_path, LOG)
    columns = {"arm": [10, 2, 10, 2, 2], "reward": [0.5, 1.0, 1.5, -3.0, 0.0]}
    whole = tmp_path / "log.parquet"
    parquet.write_table(pa.table(columns), whole)
    coded = tmp_path / "coded.parquet"
    labels = pa.array([str(arm) for arm in columns["arm"]]).dictionary_encode()
    rewards = pa.array(columns["reward"], pa.float32())
    parquet.write_table(pa.table({"who": labels, "what": rewards}), coded)

    direct = bl.environment("empirical", samples={10: [0.5, 1.5], 2: [1.0, -3.0, 0.0]})
    assert direct.arm_labels == (2, 10)  # as numbers, not as text
    assert direct.means == pytest.approx([-2 / 3, 1.0])
    for world in (
        bl.environment("empirical", path=csv),
        bl.environment("empirical", path=str(whole)),
        bl.environment("empirical", path=coded, arm="who", reward="what"),
    ):
        assert world.arm_labels == direct.arm_labels
        np.testing.assert_array_equal(draws(world, 0, 30), draws(direct, 0, 30))
        json.dumps(world.parameters)
        assert bl.environment("empirical", **world.parameters) == world


def test_labels_that_are_not_all_numbers_are_sorted_as_text(tmp_path):
    world = bl.environment(
        "empirical", path=write(tmp_path, "arm,reward\n10,1\nNA,0\n9,1\n007,4\n")
    )
    assert world.arm_labels == ("007", "10", "9", "NA")
    assert world.means.tolist() == [4.0, 1.0, 1.0, 0.0]


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


# Play


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
