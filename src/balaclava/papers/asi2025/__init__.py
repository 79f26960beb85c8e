"""Asi, Raman, Talwar, Faster rates for private adversarial bandits, 2025.

The paper has one figure, on how EXP3 leaks, and two kinds of theorems. Its Table 1 has upper bounds
for bandits, without and with experts. Lemma 5.1 is a lower bound for policies that settle early.
The modules here measure the theorems on the losses that are hardest for each setting.
"""

# The order of the gallery.
# isort: off
from balaclava.papers.asi2025 import exp3_leak as exp3_leak
from balaclava.papers.asi2025 import bandit_rates as bandit_rates
from balaclava.papers.asi2025 import expert_rates as expert_rates
from balaclava.papers.asi2025 import learning_rate as learning_rate
from balaclava.papers.asi2025 import lemma51 as lemma51
