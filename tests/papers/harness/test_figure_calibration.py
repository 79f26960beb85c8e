"""Scales of the figures: each is searched for once."""

from __future__ import annotations

import pytest

import balaclava as bl
from balaclava.advice.choose.calibrate import calibrate, choose_scale
from balaclava.advice.choose.scale_search import ScaleSearch
from balaclava.papers.harness import figure_calibration
from balaclava.papers.harness.figure_run import RunSize


def test_scales_are_searched_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []

    def counted(search: ScaleSearch, *given: object) -> object:
        searched.append(search.horizon)
        return choose_scale(search, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(figure_calibration, "choose_scale", counted)
    policy = bl.policy("ucb1", arms=2)
    worlds = tuple(bl.environment("bernoulli", means=[0.2, high]) for high in (0.5, 0.9))
    question = figure_calibration.ScaleQuestion(policy, worlds, RunSize(400, 2))
    scales = [figure_calibration.find_scales({"a": question, "b": question}, 1) for _ in range(3)]
    assert searched == [400]
    done = calibrate(
        policy,
        list(worlds),
        horizon=400,
        repetitions=2,
        seed=figure_calibration.CALIBRATION_SEED,
        scales=figure_calibration.RADIUS_SCALES,
    )
    assert scales == 3 * [{"a": done.scale, "b": done.scale}]  # as bl.calibrate chooses
    assert (
        figure_calibration.unscaled_label(figure_calibration.scaled_label("dpr-se", 0.25))
        == "dpr-se"
    )
