"""dpr-se and ldpr-se (Tao, Wu, Zhao, Wang 2022), with dpr-ucb: constants, rules and bounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.tape import Recorder
from balaclava.environments.hard_instances import hard_pair
from balaclava.errors import ParameterError
from balaclava.policies.heavy_tailed import dpr_se, ldpr_se
from balaclava.policies.theorem_conditions import moments_hold
from balaclava.privacy.mechanisms.truncation import exact_step, truncated, truncated_onto
from balaclava.testing.conformance import played
from balaclava.theory.truncation_radius import raw_moment_bound

NAMES = ["dpr-ucb", "dpr-se", "ldpr-se"]
U = 8.142063093163385  # of the paper's arms at v = 0.9
S1 = [0.9, 0.7, 0.5, 0.3, 0.1]


def make(name: str, **changes: Any) -> Any:
    usual = {"arms": 5, "epsilon": 1.0, "horizon": 10**6, "moment_order": 1.9, "moment_bound": U}
    return bl.policy(name, **{**usual, **changes})


# Constants


def test_moment_of_the_paper() -> None:
    for v, u in ((0.5, 5.594637409335428), (0.9, U)):
        world = bl.environment("pareto", means=S1, shape=1.05 + v)
        assert world.moment(1 + v) == pytest.approx(u, rel=1e-13)


@pytest.mark.parametrize(
    ("module", "name", "ell", "length", "level", "err"),
    [
        (
            dpr_se,
            "dpr-se",
            16.811242831518264,
            612090,
            758.5315431624155,
            0.020833305506493555,
        ),
        (
            ldpr_se,
            "ldpr-se",
            17.50439001207821,
            44487672069,
            900.240034990577,
            0.017857142855464525,
        ),
    ],
    ids=["dpr-se", "ldpr-se"],
)
def test_golden_epoch(
    module: Any, name: str, ell: float, length: int, level: float, err: float
) -> None:
    policy = make(name)
    params = policy.constants()
    assert policy.first_epoch == length
    assert module.log_term(params, 5, 1) == pytest.approx(ell, rel=1e-14)
    assert module.truncation_level(params, 5, 1, length) == pytest.approx(level, rel=1e-14)
    assert module.error_radius(params, 5, 1, length) == pytest.approx(err, rel=1e-14)
    state = policy.kernels.begin(params)
    _, phase = policy.kernels.choose(params, state, 1, None, np.random.default_rng(1))
    opened = (state.epochs.length[0], state.level[phase % 2])
    assert opened == (length, pytest.approx(level, rel=1e-14))


@pytest.mark.parametrize("v", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("scale", [0.05, 1.0])
def test_epochs_by_hand(v: float, epsilon: float, scale: float) -> None:
    common = {"moment_order": 1 + v, "epsilon": epsilon, "radius_scale": scale, "moment_bound": 2.5}
    bar, a, u = min(epsilon, 1.0), (1 + v) / v, 2.5
    for active, tau in ((5, 1), (2, 3)):
        params = make("dpr-se", **common).constants()
        ell, D = math.log(4 * active * tau**2 * 1e6), 2.0**-tau
        R = math.ceil(u ** (1 / v) * (24 * scale) ** a * ell / (bar * D**a) + 1)
        assert dpr_se.epoch_length(params, active, tau) == pytest.approx(R, rel=1e-12, abs=1)
        err = u ** (1 / (1 + v)) * (ell / (R * bar)) ** (v / (1 + v))
        assert dpr_se.error_radius(params, active, tau, R) == pytest.approx(err, rel=1e-12)
        B = (u * R * bar / ell) ** (1 / (1 + v))
        assert dpr_se.truncation_level(params, active, tau, R) == pytest.approx(B, rel=1e-12)
        assert 24 * scale * err < D  # what an epoch is for

        params = make("ldpr-se", **common).constants()
        ell = math.log(8 * active * tau**2 * 1e6)
        R = u ** (2 / v) * (28 * scale) ** (2 * a) * ell / (epsilon**2 * D ** (2 * a))
        R = math.ceil(R + max(1.0, epsilon**2) * ell)
        if R > 10**17:  # beyond every horizon: the length is capped
            assert ldpr_se.epoch_length(params, active, tau) > 10**16
            continue
        assert ldpr_se.epoch_length(params, active, tau) == pytest.approx(R, rel=1e-12, abs=1)
        err = u ** (1 / (1 + v)) * (math.sqrt(ell) / (math.sqrt(R) * epsilon)) ** (v / (1 + v))
        assert ldpr_se.error_radius(params, active, tau, R) == pytest.approx(err, rel=1e-12)
        B = (u * math.sqrt(R) * epsilon / math.sqrt(ell)) ** (1 / (1 + v))
        assert ldpr_se.truncation_level(params, active, tau, R) == pytest.approx(B, rel=1e-12)
        assert 28 * scale * err <= D * (1 + 1e-12)


def test_epsilon_above_1() -> None:
    """1 stands for it in levels and radii of the central policies, never in the noise."""
    for epsilon in (1.0, 4.0):
        assert make("dpr-ucb", epsilon=epsilon).level(7) == make("dpr-ucb").level(7)
        assert make("dpr-ucb", epsilon=epsilon).constants().bonus == make("dpr-ucb").constants()[-1]
        assert make("dpr-se", epsilon=epsilon).first_epoch == 612090
    assert make("dpr-ucb", epsilon=0.5).level(7) < make("dpr-ucb").level(7)
    for name in ("dpr-ucb", "dpr-se"):
        policy = make(name, epsilon=4.0, arms=2, horizon=64, radius_scale=1e-3)
        spent = {entry.terms.epsilon for entry in releases(policy, 64)}
        assert spent == {4.0 if name == "dpr-se" else 4.0 / 7}


# Rules


def releases(policy: bl.Policy, rounds: int, reward: float = 0.0) -> list[Any]:
    params, recorder = policy.constants(), Recorder(1)
    begin, choose, learn, _ = policy.kernels
    state = begin(params)
    for t in range(1, rounds + 1):
        arm, phase = choose(params, state, t, None, recorder)
        learn(params, state, t, arm, reward, phase, recorder)
    return [entry for entry in recorder.tape if entry.terms is not None]


def test_rewards_beyond_the_level_count_as_0() -> None:
    policy = make("dpr-ucb", arms=1, horizon=100)
    reward = policy.level(50)
    values = [entry.terms.value for entry in releases(policy, 100, reward * (1 + 1e-9))]
    assert set(values[:49]) == {0.0}  # nodes of the first 49 rewards
    assert values[50] == pytest.approx(reward)
    assert values[63] == pytest.approx(14 * reward)  # the node of items 1 to 64: 51 to 64 count


def test_sums_are_exact_on_the_grid() -> None:
    for level, items in ((0.37, 10**6), (758.5, 612_090), (3e-9, 7)):
        step = exact_step(level, items)
        assert math.frexp(step)[0] == 0.5
        assert items * level / step < 2**53 <= 2 * items * level / step * (1 + 1e-9)
        for x in (level, -level, level / 3, step / 2, -step * 0.99):
            rounded = truncated_onto(x, level, step)
            assert abs(rounded) <= abs(x) <= abs(rounded) + step
            assert (rounded / step).is_integer()
        assert truncated_onto(level * 1.001, level, step) == 0.0
        assert abs(truncated(level, level)) <= level


@pytest.mark.parametrize("name", ["dpr-se", "ldpr-se"])
def test_an_epoch_that_the_horizon_cuts_off_drops_nothing(name: str) -> None:
    policy = make(name, arms=3, horizon=100)
    decisions = [decision for decision, _ in played(policy, policy.agent(seed=0), 100)]
    arms = [decision.arm for decision in decisions]  # permuted blocks
    assert all(sorted(arms[i : i + 3]) == [0, 1, 2] for i in range(0, 99, 3))
    assert {decision.phase for decision in decisions} == {1}
    if name == "dpr-se":
        assert releases(policy, 100) == []


@pytest.mark.parametrize("name", NAMES)
def test_without_noise_the_best_arm_wins(name: str) -> None:
    scale = {"dpr-ucb": 1e-3, "dpr-se": 0.02, "ldpr-se": 1e-4}[name]
    policy = make(name, arms=3, epsilon=1e3, horizon=40_000, radius_scale=scale)
    agent, last = policy.agent(seed=0), []
    for _ in range(4_000):
        decision = agent.ask()
        last.append(decision.arm)
        agent.tell(decision, (0.1, 0.9, 0.5)[decision.arm])
    if name == "ldpr-se":  # its epochs have at least epsilon^2 log(...) pulls
        assert policy.first_epoch > 10**7
    else:
        assert np.bincount(last[-500:], minlength=3).argmax() == 1


def by_hand(name: str, p: bl.Policy, horizon: int, rng: np.random.Generator) -> np.ndarray:
    """The listings in plain numpy, on Gaussian arms: pulls of each arm."""
    means, K = MEANS, len(MEANS)
    eps, c, u, v = (
        p.parameters[key] for key in ("epsilon", "radius_scale", "moment_bound", "moment_order")
    )
    v, bar, T = v - 1.0, min(eps, 1.0), p.parameters["horizon"]
    pulls = np.zeros(K, np.int64)
    if name == "dpr-ucb":
        L, log = math.floor(math.log2(T)) + 1, math.log(T)
        alpha, noisy = np.zeros((K, L)), np.zeros((K, L))
        for t in range(1, horizon + 1):
            arm = t - 1
            if t > K:
                bonus = math.log(2 * t**4) * log ** (1.5 + 1 / v) / (pulls * bar)
                index = noisy.sum(axis=1) / pulls
                arm = int((index + c * 18 * u ** (1 / (1 + v)) * bonus ** (v / (1 + v))).argmax())
            pulls[arm] += 1
            n = int(pulls[arm])
            B = (bar * u * n / log**1.5) ** (1 / (1 + v))
            x = rng.normal(means[arm])
            i = (n & -n).bit_length() - 1
            alpha[arm, i] = alpha[arm, :i].sum() + (x if abs(x) <= B else 0.0)
            alpha[arm, :i] = noisy[arm, :i] = 0.0
            noisy[arm, i] = alpha[arm, i] + rng.laplace(0, 2 * B * L / eps)
        return pulls
    active, left, tau, local = list(range(K)), horizon, 0, name == "ldpr-se"
    while len(active) > 1 and left > 0:
        tau += 1
        ell, D, a = math.log((8 if local else 4) * len(active) * tau**2 * T), 2.0**-tau, 1 + 1 / v
        if local:
            R = u ** (2 / v) * (28 * c) ** (2 * a) * ell / (eps**2 * D ** (2 * a))
            R = math.ceil(R + max(1.0, eps**2) * ell)
            ratio = math.sqrt(R / ell) * eps
        else:
            R = math.ceil(u ** (1 / v) * (24 * c) ** a * ell / (bar * D**a) + 1)
            ratio = R * bar / ell
        if left < R * len(active):
            pulls[active] += left // len(active)
            pulls[active[: left % len(active)]] += 1
            return pulls
        pulls[active] += R
        left -= R * len(active)
        B, err = (u * ratio) ** (1 / (1 + v)), u ** (1 / (1 + v)) * ratio ** (-v / (1 + v))
        x = rng.normal(np.array(means)[active], size=(R, len(active)))
        x = np.where(np.abs(x) <= B, x, 0.0)
        if local:
            x += rng.laplace(0, 2 * B / eps, x.shape)
        m = x.mean(axis=0)
        if not local:
            m += rng.laplace(0, 2 * B / (R * eps), len(active))
        margin = (14 if local else 12) * c * err
        active = [arm for arm, s in zip(active, m, strict=True) if m.max() - s <= margin]
    pulls[active[0]] += left
    return pulls


MEANS = (0.0, 1.0, 1.5)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "scale", "epsilon", "runs"),
    [
        ("dpr-ucb", 0.02, 0.8, 40),
        ("dpr-ucb", 0.005, 3.0, 40),
        ("dpr-se", 0.05, 0.8, 200),
        ("dpr-se", 0.02, 3.0, 200),
        ("ldpr-se", 0.02, 2.0, 200),
    ],
)
def test_regret_agrees_with_the_listing(name: str, scale: float, epsilon: float, runs: int) -> None:
    """Means within 4 standard errors: with fresh seeds once in 16,000; these are fixed."""
    horizon = 1_000 if name == "dpr-ucb" else 2_000
    policy = make(
        name, arms=3, epsilon=epsilon, horizon=horizon, radius_scale=scale, moment_bound=4.0
    )
    world = bl.environment("gaussian", means=MEANS)
    ours = bl.simulate(policy, world, horizon=horizon, repetitions=400, seed=1).final_regret(name)
    rng = np.random.default_rng(2)
    theirs = np.array([by_hand(name, policy, horizon, rng) @ world.gaps for _ in range(runs)])
    error = math.sqrt(ours.var() / 400 + theirs.var() / runs)
    assert 0 < error < 0.2 * theirs.mean()
    assert abs(ours.mean() - theirs.mean()) <= 4 * error


@pytest.mark.parametrize("name", NAMES)
def test_bad_parameters(name: str) -> None:
    for parameter, values in {
        "moment_order": (1.0, 2.1, 0.5, math.nan),
        "moment_bound": (0.0, -1.0, math.inf),
        "epsilon": (0.0, -1.0),
        "radius_scale": (0.0,),
    }.items():
        for value in values:
            with pytest.raises(ParameterError, match=parameter):
                make(name, **{parameter: value})
    for extreme in (1e300, 1e-300):
        with pytest.raises(ParameterError, match=r"moment_bound.*rescale"):
            make(name, moment_bound=extreme, moment_order=1.1)
        with pytest.raises(ParameterError, match=r"moment_bound.*rescale"):
            make(name, moment_bound=extreme, moment_order=1.0001)
    # Epochs beyond every horizon, and powers beyond every float, are fine.
    assert make(name, moment_order=1.0001, moment_bound=50.0, arms=10_000).agent(seed=0).ask()
    assert make(name, epsilon=1e100).agent(seed=0).ask()


# Privacy


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("name", NAMES)
def test_audit(name: str) -> None:
    policy = make(name, arms=2, horizon=600, moment_bound=2.0, radius_scale=0.02)
    report = bl.audit(policy, trials=8_000, pairs=200, seed=1)
    assert report.verdict == "consistent", str(report)
    assert report.replay.moved >= 50  # of 200
    assert report.replay.declared > 0.5
    if name == "ldpr-se":
        assert report.epsilon_lower > 0.7


# Regret bounds


def points(*values: float) -> bl.Environment:
    return bl.environment("two-point", values=values, probabilities=np.ones(len(values)))


@pytest.mark.parametrize(
    ("name", "values", "scale", "horizon"),
    [
        ("dpr-ucb", (-1.0, 1.0), 0.25, 2 * 10**6),
        ("dpr-se", (-0.5, 0.5), 0.8, 10**6),
        ("ldpr-se", (-0.25, 0.25), 0.75, 2 * 10**6),
    ],
)
def test_bounds_hold_and_say_something(
    name: str, values: tuple[float, ...], scale: float, horizon: int
) -> None:
    world = points(*values)
    policy = make(
        name,
        arms=2,
        horizon=horizon,
        moment_order=2.0,
        moment_bound=world.moment(2.0),
        radius_scale=scale,
    )
    bound = policy.regret_bound(world, horizon)
    assert bound is not None
    assert bound < 0.8 * horizon * world.gaps.max()  # less than playing the worse arm throughout
    found = bl.simulate(policy, world, horizon=horizon, repetitions=2, seed=1).final_regret(name)
    assert 0 < found.max() <= bound
    # Shorter games have smaller bounds, and no bound is above the trivial one by much.
    assert policy.regret_bound(world, 100) <= 100 * world.gaps.max() + 1


@pytest.mark.parametrize("name", NAMES)
def test_no_bound_where_nothing_is_proved(name: str) -> None:
    world = bl.environment("pareto", means=S1, shape=1.95)
    assert make(name, moment_bound=U * 1.001).regret_bound(world, 10**6) is not None
    assert make(name, moment_bound=U * 0.99).regret_bound(world, 10**6) is None
    assert make(name, radius_scale=0.1).regret_bound(world, 10**6) is None
    assert make(name, radius_scale=2.0).regret_bound(world, 10**6) is not None
    gone = bl.environment("pareto", means=S1, shape=1.5)  # the moment is infinite
    assert make(name).regret_bound(gone, 10**6) is None
    equal = points(0.5, 0.5)
    assert make(name, arms=2).regret_bound(equal, 100) == 0.0


@pytest.mark.parametrize("v", [0.5, 1.0])
def test_pulls_are_below_the_closed_forms(v: float) -> None:
    """What the docstrings say of R_1 + ... + R_tau."""
    T, K, u, a = 1e6, 2, 1.5, (1 + v) / v
    for gap in (0.5, 0.3, 0.06, 0.03):
        tau = math.ceil(math.log2(1 / gap))
        common = {"arms": K, "moment_order": 1 + v, "moment_bound": u, "radius_scale": 0.2}
        params = make("dpr-se", **common, epsilon=0.5).constants()
        total = sum(dpr_se.epoch_length(params, K, i) for i in range(1, tau + 1))
        ell = math.log(4 * K * tau**2 * T)
        closed = 4 / 3 * u ** (1 / v) * (0.2 * 48 / gap) ** a * ell / 0.5 + 2 * tau
        assert closed / 40 < total <= closed
        params = make("ldpr-se", **common, epsilon=0.5).constants()
        total = sum(ldpr_se.epoch_length(params, K, i) for i in range(1, tau + 1))
        ell = math.log(8 * K * tau**2 * T)
        closed = 16 / 15 * u ** (2 / v) * (0.2 * 56 / gap) ** (2 * a) * ell / 0.25 + tau * (ell + 1)
        assert closed / 2000 < total <= closed


def test_upper_bounds_are_above_lower_bounds() -> None:
    here, _ = hard_pair(0.1, 2.0)
    T, common = 10**17, {"moment_order": 2.0, "epsilon": 1.0, "horizon": 10**17}
    central = make("dpr-se", arms=2, moment_bound=0.5, **common).regret_bound(here, T)
    assert central > bl.bounds.heavy_tailed_pair(0.1, **common) > 0
    local = make("ldpr-se", arms=2, moment_bound=0.5, **common).regret_bound(here, T)
    assert local > bl.bounds.local_pair(0.1, **common) > 0
    assert local > central


# Plots and moments


def test_theory_lines() -> None:
    world = bl.environment("gaussian", means=[0.9, 0.1])
    policies = {
        "proved": make("dpr-se", arms=2, horizon=100),
        "scaled": make("dpr-se", arms=2, horizon=100, radius_scale=0.1),
    }
    results = bl.simulate(policies, world, horizon=100, repetitions=2, seed=1, checkpoints=10)
    lines = {line.get_label(): line for line in results.plot(theory=True).axes[0].lines}
    assert [label for label in lines if "proved bound" in label] == ["proved: proved bound"]
    curve = lines["proved: proved bound"]
    assert curve.get_xdata().tolist() == results.checkpoints.tolist()
    expected = policies["proved"].regret_bound(world, 100)
    assert curve.get_ydata()[-1] == expected
    assert (np.diff(curve.get_ydata()) > 0).all()
    assert len(results.plot().axes[0].lines) == 2


@pytest.mark.parametrize("name", ["dpr-ucb", "dpr-se", "ldpr-se"])
def test_a_central_moment_and_a_range_of_means_stand_for_a_raw_moment(name: str) -> None:
    common = {"moment_order": 1.5, "arms": 2}
    central = make(name, moment_bound=8.0, mean_range=5.0, **common)
    raw = make(name, moment_bound=(8.0 ** (1 / 1.5) + 5.0) ** 1.5, **common)
    assert central.constants() == pytest.approx(raw.constants())
    # What is proved holds for means within the range only.
    world = bl.environment("gaussian", means=[4.0, 3.5])
    assert central.central_moments
    assert not raw.central_moments
    assert moments_hold(central, world)
    assert not moments_hold(central, bl.environment("gaussian", means=[6.0, 5.5]))


def test_raw_and_central_moments() -> None:
    """Lemma 10, on laws whose moments are known, and our constant against the printed one."""
    for order in (1.2, 1.5, 2.0):
        for world in (
            bl.environment("gaussian", means=[3.0], scales=2.0),
            bl.environment("pareto", means=[2.0], shape=2.5),
            bl.environment("two-point", values=[4.0], probabilities=[0.1]),
        ):
            raw, central = world.moment(order), world.moment(order, central=True)
            mean = abs(float(world.means[0]))
            bound = raw_moment_bound(central, mean_range=mean, order=order)
            assert raw <= bound <= 2 * central + 2 * mean**order
            assert central <= 4 * raw
