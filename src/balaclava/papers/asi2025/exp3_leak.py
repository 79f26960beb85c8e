"""Asi, Raman, Talwar 2025, Figure 1: the effect of one loss on EXP3."""

from collections.abc import Callable
from typing import Any

import numpy as np

from balaclava._core.kernels import compiled
from balaclava.papers.asi2025.loss_families import ASI_2025
from balaclava.papers.harness.figure_plots import Figure, frame_axes, new_picture
from balaclava.papers.harness.figure_registry import figure
from balaclava.papers.harness.figure_run import PAPERS_SCALE, FigureRun, FigureText
from balaclava.policies.classic.exp3 import Exp3
from balaclava.privacy.randomness import seeded
from balaclava.simulation.analysis.regret_plots import COLOURS

# Rounds, by scale; the paper has a million.
FORCED_ROUNDS = {"quick": 1_000_000, "paper": 1_000_000, "tiny": 100_001}
LEAK_RATE = 1e-4  # the paper's eta and gamma


def make_forced(
    begin: Callable[..., Any], choose: Callable[..., Any], learn: Callable[..., Any]
) -> Callable[..., Any]:
    """A loop that forces a policy to play arms 1, 0, 1, 0, ... and records the chance of arm 1."""

    def forced(params: Any, first_loss: float, rng: Any, chances: np.ndarray) -> None:
        state = begin(params)
        for t in range(chances.size):
            _, number = choose(params, state, t + 1, None, rng)
            arm = 1 - t % 2
            row = number % state.pending.numbers.size
            state.pending.notes[row, 0] = state.chances[arm]  # as if the policy had drawn this arm
            chances[t] = state.chances[1]
            learn(params, state, t + 1, arm, first_loss if t == 0 else 1.0, number, rng)

    return forced


def exp3_chances(first_loss: float, rounds: int, rate: float = LEAK_RATE) -> np.ndarray:
    """The chance of the second arm in each round; losses are 1, but its first is `first_loss`."""
    policy = Exp3(arms=2, eta=rate, gamma=rate, outstanding=1)
    chances = np.zeros(rounds)
    play = compiled(make_forced, *policy.kernels[:3])
    play(policy.constants(), first_loss, seeded(ASI_2025.seed), chances)
    return chances


@figure(
    "asi2025-fig1",
    "Why EXP3 is not private: one loss decides where it ends",
    ASI_2025,
    PAPERS_SCALE,
)
def figure_1(run: FigureRun) -> FigureText:
    rounds = FORCED_ROUNDS[run.scale]
    changed, plain = exp3_chances(0.0, rounds), exp3_chances(1.0, rounds)
    loss = np.log(changed / plain)
    places = np.unique(np.geomspace(1, rounds, 2_000).astype(int)) - 1
    run.save_table(
        {"t": places, "P": changed[places], "P_prime": plain[places], "log_ratio": loss[places]}
    )
    run.save_picture(_draw_leak(changed, plain, loss))
    forced = np.where(np.arange(rounds) % 2 == 0, loss, np.log1p(-changed) - np.log1p(-plain))
    return run.text(
        rate=LEAK_RATE,
        changed=changed,
        plain=plain,
        loss=loss,
        rounds=[t for t in (2, 10_000, 100_000) if t < rounds],
        apart=int(np.argmax(np.abs(loss) > 1.0)),
        together=np.abs(np.cumsum(forced)).max(),
    )


def _draw_leak(changed: np.ndarray, plain: np.ndarray, loss: np.ndarray) -> Figure:
    t = np.arange(1, changed.size + 1)
    title = f"Asi, Raman, Talwar 2025, Figure 1: EXP3 with η = γ = {LEAK_RATE:g}"
    picture = new_picture(f"{title}, arms forced to alternate", 12, 4.6)
    left, right = picture.subplots(1, 2)
    left.plot(t, changed, color=COLOURS[0], lw=1.8, label="the arm's first loss is 0")
    left.plot(t, plain, color=COLOURS[1], lw=1.8, ls="--", label="all losses are 1")
    left.set_ylabel("chance of the second arm")
    left.set_title("(a) one loss decides", fontsize=10, loc="left")
    left.legend(frameon=False, loc="upper left")
    right.plot(t[1:], np.abs(loss[1:]), color=COLOURS[0], lw=1.8, label="log-ratio of the chances")
    right.axhline(LEAK_RATE, color="0.5", lw=1, ls=":", label="η")
    right.set_yscale("log")
    right.set_ylabel("leak of one round")
    right.set_title("(b) it is not of order η", fontsize=10, loc="left")
    right.legend(frameon=False, loc="upper left")
    for ax in (left, right):
        ax.set_xscale("log")
        ax.set_xlabel("round t, from 1")
        frame_axes(ax, log=False)
    return picture
