"""Wang and Zhu, Optimal learning policies for differential privacy in multi-armed bandits, 2024.

Figures 1 to 3 draw the distribution of an arm's index before and after one reward changes, inside
the region that Lemma 8 allows. Figures 4 to 7 are simulations on two instances of Bernoulli arms.
"""

# The order of the gallery.
# isort: off
from balaclava.papers.wang2024 import index_regions as index_regions
from balaclava.papers.wang2024 import regret_over_rounds as regret_over_rounds
from balaclava.papers.wang2024 import final_regret as final_regret
