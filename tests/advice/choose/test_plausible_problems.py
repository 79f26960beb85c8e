"""Problems around an average."""

from __future__ import annotations

import pytest

from balaclava.advice.choose.plausible_problems import problems_around
from balaclava.advice.choose.questions import derive_moment


def test_problems_around_an_average():
    """A derived moment holds on every arm; ends of any range give the averages."""
    moments = derive_moment(typical=20, largest=500, one_in=10_000)
    around = problems_around(3, 24.7, 4.0, index=moments.tail_index)
    for world in (*around.worlds.values(), *around.held_out.values()):
        assert world.means.max() == pytest.approx(24.7)
        assert world.moment(2.0) <= moments.bound == 980.0
    worlds = problems_around(3, 10.0, 4.0, reward_range=(-10, 30)).worlds
    assert worlds["spread"].means.tolist() == pytest.approx([6, 10, 14])
    assert worlds["spread"].reward_range == (-10, 30)
    assert not worlds["spread"].holds_data
