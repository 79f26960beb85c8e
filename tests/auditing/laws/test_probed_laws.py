"""A law that is read from the body of a mechanism, at chosen draws."""

from __future__ import annotations

import math

import numpy as np
import pytest

from balaclava.auditing.laws.probed_laws import (
    ChosenDraws,
    RareDraws,
    answer_to,
    bare_after_rare_draws,
    probed_law,
)
from balaclava.privacy.mechanisms.base import Terms, declared_mechanism, mechanism
from balaclava.privacy.mechanisms.laplace import laplace_vector_release

TERMS = Terms(0.7, 2.0, 0.5, 0.0)


def body(noise):
    """A mechanism whose noise is a function of the generator."""

    @mechanism("probed", lambda terms: terms.value)
    def release(rng, value, sensitivity, epsilon):
        return value + noise(rng)

    return declared_mechanism(release)


@pytest.mark.parametrize(
    ("noise", "name", "scale"),
    [
        (lambda rng: rng.laplace(0.0, 3.0), "laplace", 3.0),
        (lambda rng: 1.5 * rng.standard_normal(), "norm", 1.5),
        (lambda rng: -rng.normal(0.0, 1.5), "norm", 1.5),
    ],
)
def test_one_scaled_draw_has_a_known_law(noise, name, scale):
    law = probed_law(body(noise), TERMS)
    assert law.dist.name == name
    assert law.args == pytest.approx((0.7, scale))


@pytest.mark.parametrize(
    "noise",
    [
        lambda rng: 0.0,  # no draw
        lambda rng: 0.0 * rng.laplace(),
        lambda rng: rng.laplace() + rng.laplace(),
        lambda rng: rng.laplace() ** 3,
        lambda rng: abs(rng.laplace()),
        lambda rng: max(rng.laplace(), -2.0) if rng.laplace() else 0.0,
        lambda rng: min(rng.laplace(), 2.0),
        lambda rng: 0.1 + rng.laplace(),  # a centre that is off
        lambda rng: rng.laplace(0.1, 1.0),
        lambda rng: rng.random(),
        lambda rng: math.log(rng.laplace()),
    ],
)
def test_any_other_law_is_unknown(noise):
    assert probed_law(body(noise), TERMS) is None


def test_the_law_of_an_array_is_that_of_the_noise_in_each_part():
    terms = Terms((5.0, -1.0), 2.0, 0.5, 0.0)
    law = probed_law(declared_mechanism(laplace_vector_release), terms)
    assert (law.dist.name, law.args) == ("laplace", (0.0, 4.0))

    @mechanism("two families", lambda terms: terms.value)
    def mixed(rng, value, sensitivity, epsilon, out):
        out[0], out[1] = value[0] + rng.laplace(), value[1] + rng.standard_normal()

    assert probed_law(declared_mechanism(mixed), terms) is None

    @mechanism("two scales", lambda terms: terms.value)
    def uneven(rng, value, sensitivity, epsilon, out):
        out[0], out[1] = value[0] + rng.laplace(), value[1] + 2.0 * rng.laplace()

    assert probed_law(declared_mechanism(uneven), terms) is None


def test_an_answer_to_chosen_draws():
    draws = ChosenDraws(2.0)
    assert draws.laplace(1.0, 3.0) == 7.0
    assert draws.standard_normal() == 2.0
    assert draws.families == ["laplace", "norm"]
    with pytest.raises(AttributeError):
        draws.random()
    found = answer_to(body(lambda rng: rng.laplace()), TERMS, draws)
    assert found.tolist() == [2.7]


def test_rare_draws_are_far_in_both_tails():
    draws = RareDraws(np.random.default_rng(0))
    uniform = np.array([draws.random() for _ in range(400)])
    assert ((uniform > 0) & (uniform < 1)).all()
    tails = [np.mean(uniform < 0.01), np.mean(uniform > 0.99)]
    assert tails == pytest.approx([0.25, 0.25], abs=0.08)
    assert uniform.min() < 1e-7
    assert {draws.integers(2, 5) for _ in range(100)} == {2, 3, 4}
    integers = [draws.integers(0, 1000) for _ in range(400)]
    assert (integers.count(0) > 60, integers.count(999) > 60) == (True, True)
    normal = np.array([draws.standard_normal() for _ in range(400)])
    assert (normal.min() < -5.0, normal.max() > 5.0) == (True, True)
    assert max(draws.standard_exponential() for _ in range(400)) > 20.0
    with pytest.raises(AttributeError):
        draws.release()


def test_a_body_without_noise_after_rare_draws_is_seen():
    def bare(rng):
        return 0.0 if rng.random() < 1e-3 else rng.laplace()

    assert bare_after_rare_draws(body(bare), TERMS)
    assert not bare_after_rare_draws(body(lambda rng: rng.laplace()), TERMS)
    assert not bare_after_rare_draws(body(bare), TERMS._replace(value=1e12))  # lost by rounding
    assert not bare_after_rare_draws(body(lambda rng: math.log(-1.0)), TERMS)
