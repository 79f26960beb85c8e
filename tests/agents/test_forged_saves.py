"""Forged saves, sealed again: an extreme number in an array is refused, or played on with."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import numpy as np
import pytest

import balaclava as bl
from balaclava.agents import saving
from balaclava.errors import BalaclavaError
from balaclava.testing.conformance import played
from balaclava.testing.examples import examples

EXTREMES: dict[str, tuple[float, ...]] = {"f": (1e300, -1e300), "i": (2**40, -1)}


def forged(saved: dict[str, Any], name: str, extreme: float) -> dict[str, Any]:
    """The save with this number at both ends of an array, and its digest."""
    changed = copy.deepcopy(saved)
    packed = changed["state"][name]
    content = saving._unpacked(packed, 8 * saving.MOST_COMPRESSED)
    values = np.frombuffer(content, dtype=packed["dtype"]).copy()
    values[[0, -1]] = extreme
    packed.pop("deflated", None)
    packed["data"] = base64.b64encode(values.tobytes()).decode()
    changed["digest"] = saving.content_digest(changed)
    return changed


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numpy, at such numbers
@pytest.mark.parametrize(
    "policy", [entry.policy for entry in bl.list_policies()], ids=lambda p: p.name
)
def test_no_number_of_a_save_crashes_its_agent(policy: type[bl.Policy]) -> None:
    example = next(iter(examples(policy)))
    agent = example.agent(seed=1)
    for _ in played(example, agent, 60, delay=3):
        pass
    saved = json.loads(json.dumps(agent.save()))
    crashes = []
    for name, array in saved["state"].items():
        for extreme in EXTREMES.get(array["dtype"][1], ()) if 0 not in array["shape"] else ():
            try:
                restored = bl.restore(forged(saved, name, extreme))
                for _ in played(example, restored, 4, delay=1):
                    pass
                restored.status()
                restored.save()
                restored.estimates()
            except BalaclavaError:
                continue
            except Exception as error:
                crashes.append((name, extreme, repr(error)))
    assert crashes == []
