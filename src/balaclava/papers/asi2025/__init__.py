"""Asi, Raman, Talwar, Faster rates for private adversarial bandits, 2025.

The paper has one figure, of how EXP3 leaks, and two kinds of theorems: upper bounds for bandits
and for bandits with experts (its Table 1), and a lower bound for policies that settle early
(Lemma 5.1). The theorems are measured here, on the losses that are hardest for each setting.
"""

# The order is that in which a gallery shows them.
# isort: off
from balaclava.papers.asi2025 import exp3_leak as exp3_leak
from balaclava.papers.asi2025 import bandit_rates as bandit_rates
from balaclava.papers.asi2025 import expert_rates as expert_rates
from balaclava.papers.asi2025 import learning_rate as learning_rate
from balaclava.papers.asi2025 import lemma51 as lemma51
