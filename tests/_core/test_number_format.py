"""No bound is printed better than it is, wherever one is printed."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

import balaclava as bl
from balaclava._core.number_format import rounded_down, rounded_up, significant
from balaclava.auditing.audit_report import AuditReport
from balaclava.auditing.games.pair_tests import PairTest
from balaclava.auditing.games.statistical_audit import StatisticalAudit
from balaclava.auditing.replay.composed_loss import ComposedLoss
from balaclava.privacy.composition import AnyMechanism, Bound, Composition

SPECS = [".0f", ".3f", ".2g", ".3g", ".6g", ",.0f", ",.4g"]
RECORD = Path(__file__).parents[2] / "benchmarks" / "audit.json"


@pytest.mark.parametrize("spec", SPECS)
def test_a_value_lies_between_its_two_figures(spec: str) -> None:
    rng = np.random.default_rng(1)
    for value in (10.0 ** rng.uniform(-9, 9, 300) * rng.random(300)).tolist():
        low, high = rounded_down(value, spec), rounded_up(value, spec)
        exact = Decimal(f"{value:.12g}")
        assert Decimal(low.replace(",", "")) <= exact <= Decimal(high.replace(",", ""))
        assert format(value, spec) in (low, high)  # as near as the digits allow


def test_what_the_digits_can_say_stays_as_it_is() -> None:
    for value in (0.1, 1.0, 0.3, 1e-6, 5.0, 0.1 + 0.2):
        assert float(rounded_up(value)) == float(rounded_down(value, ".6g")) == round(value, 12)
    assert rounded_up(math.inf) == "inf"


def test_an_audit_never_says_more_than_it_showed() -> None:
    games = StatisticalAudit("consistent", 0.62499, 0.95, 1_000, "an event", 1)
    assert "at least 0.624 with" in str(games)
    claim = bl.Guarantee(epsilon=0.625 / 0.8)
    report = AuditReport("a policy", {}, claim, 0.95, None, None, games)
    assert not report.tight
    assert "loose: the bound reaches 79% of the claim" in str(report)
    assert str(PairTest(True, 1.2759, 10)).endswith("at least 1.275")


def test_a_loss_beyond_the_claim_does_not_read_like_the_claim() -> None:
    assert "epsilon 1.001 and delta 1.24e-06 (declared: 0.3334)" in str(
        ComposedLoss(1.00001, 1.2301e-6, 1 / 3, 2)
    )


def test_a_promise_is_never_printed_stronger() -> None:
    third = bl.Guarantee(epsilon=1 / 3, delta=1 / 3e6)
    assert str(third) == "ε=0.333334, δ=3.33334e-07 per trajectory"
    assert "by at most e^ε = 149." in bl.Guarantee(epsilon=5.0).explain()  # 148.41
    assert "10^11, which" in bl.Guarantee(epsilon=24.0).explain()  # 10^10.4
    together = bl.Guarantee(epsilon=0.1, scope="decision").over(1000, delta=1e-6)
    assert 19.344 < together.epsilon < 19.345
    assert "come to ε=19.35, δ=1e-06 by" in together.explanation


def test_a_bound_is_rounded_by_its_role() -> None:
    bounds = Bound("above", 1.0000004, "upper"), Bound("below", 0.9999996, "lower")
    text = str(Composition(AnyMechanism(1.0), 1, 1e-6, bounds))
    assert re.findall(r"(\S+)  (upper|lower)", text) == [
        ("0.999999", "lower"),
        ("1.00001", "upper"),
    ]
    assert (significant(1234.2), significant(1234.2, write=rounded_up)) == ("1,234", "1,235")


def test_the_record_of_the_audits_says_what_was_measured() -> None:
    for name, audit in json.loads(RECORD.read_text(encoding="utf-8"))["cuda"].items():
        assert f"at least {rounded_down(audit['bound'], '.3f')} with" in audit["text"], name
