"""The audit of each server's view. A correct protocol fails it with probability 1e-6 at most."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.laws import server_views
from balaclava.auditing.laws.mechanism_laws import audit_laws
from balaclava.auditing.laws.server_views import ViewFault, view_fault
from balaclava.auditing.replay.recorded_run import record
from balaclava.auditing.scenario import plain_scenario
from balaclava.auditing.tape import MovedInput, untrusted_fault
from balaclava.privacy.guarantee import Guarantee
from balaclava.privacy.mechanisms.base import Loss, Terms
from balaclava.privacy.secret_shares import ServerView, shared_release
from tests.oracles.violators import VIOLATORS
from tests.oracles.violators.servers import SPLIT_CONTROL, VIEWS

# Contradicted by thresholds, and not only by a law.
REFUTED = {"half-noise-each", "noise-of-one", "released-twice"}


def law_audit(policy: bl.Policy) -> object:
    run = record(policy, plain_scenario(policy, np.ones((30, 2))), seed=0)
    return audit_laws(run.tape[-1:], seed=0, draws=20_000)


@pytest.mark.statistical
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_that_shows_rewards_is_caught(name: str) -> None:
    found = law_audit(VIOLATORS[name].policy)
    assert found.verdict in ("violated", "unproved"), str(found)
    assert name not in REFUTED or found.verdict == "violated", str(found)
    assert "server" in found.fault


@pytest.mark.statistical
def test_the_protocol_is_consistent() -> None:
    assert law_audit(SPLIT_CONTROL).verdict == "consistent"


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("sensitivity", "epsilon"), [(1.0, 0.01), (0.3, 4.0), (1.0, 1e5), (1.0, 1e7)]
)
def test_views_keep_small_and_large_epsilons(sensitivity: float, epsilon: float) -> None:
    assert view_fault(shared_release, Terms(0.0, sensitivity, epsilon, 0.0)).text == ""


def test_one_servers_noise_does_not_keep_a_claim_of_views() -> None:
    claim = Guarantee(epsilon=1.0, model="split", scope="view")
    one = MovedInput("Laplace", Terms(0.0, 1.0, 1.0, 0.0), Loss(1.0))
    assert "sees what it adds noise to" in untrusted_fault(claim, [one])
    assert untrusted_fault(claim, [one._replace(views=True)]) == ""
    assert untrusted_fault(Guarantee(epsilon=1.0), [one]) == ""


def test_a_second_release_now_and_then_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_views, "_PLAYS", 50)
    plays = itertools.count()

    def views(*how: Any) -> tuple[ServerView, ServerView]:
        own, other = shared_release(*how)
        return own, other._replace(releases=other.releases * (1 + (next(plays) % 10 == 0)))

    found = view_fault(views, Terms(0.0, 1.0, 1.0, 0.0))
    assert found == ViewFault("the first server sees 2 releases of the other for one batch", True)
