"""KL-UCB: its shortcuts change no decision; the log log term."""

from __future__ import annotations

import numpy as np

from balaclava.estimators.kl import kl_upper
from balaclava.frames.tally import begin_tally
from balaclava.policies.classic import kl_ucb
from tests.policies.classic.test_classic import make


def test_kl_ucb_finds_the_same_arm_as_all_the_roots() -> None:
    rng = np.random.default_rng(3)
    params = make("kl-ucb", 8).constants()
    ties = 0
    for _ in range(2000):
        state = begin_tally(params)
        n = rng.integers(1, rng.choice([3, 50, 3000]), size=8)
        state.pulls[:], state.sums[:] = n, rng.binomial(n, rng.choice([0.05, 0.5, 0.95], size=8))
        level = float(rng.uniform(0.5, 15))
        indices = [kl_upper(state.sums[a] / n[a], level / n[a]) for a in range(8)]
        ties += indices.count(max(indices)) > 1
        assert kl_ucb.highest_index(state, level) == indices.index(max(indices))
    assert ties > 100


def test_kl_ucb_with_log_log_term_explores_more() -> None:
    def pulls_of_the_worse(c: float) -> int:
        agent = make("kl-ucb", 2, c=c).agent(seed=0)
        worse = 0
        for _ in range(300):
            decision = agent.ask()
            worse += decision.arm == 0
            agent.tell(decision, (0.3, 0.7)[decision.arm])
        return worse

    assert pulls_of_the_worse(0.0) < pulls_of_the_worse(3.0) < 150
