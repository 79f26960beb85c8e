"""Policies that break their privacy claim, in one table by mistake, and correct controls."""

from __future__ import annotations

from tests.oracles.violators.careful import CAREFUL
from tests.oracles.violators.controls import PROVED, UNUSUAL
from tests.oracles.violators.frame import Violator
from tests.oracles.violators.hidden import HIDDEN
from tests.oracles.violators.joint import JOINT
from tests.oracles.violators.noise import NOISE
from tests.oracles.violators.outcomes import OUTCOMES
from tests.oracles.violators.rare import RARE
from tests.oracles.violators.raw_data import RAW_DATA
from tests.oracles.violators.reports import REPORTS
from tests.oracles.violators.reuse import REUSE
from tests.oracles.violators.sensitivity import SENSITIVITY
from tests.oracles.violators.servers import SERVERS
from tests.oracles.violators.slips import SLIPS
from tests.oracles.violators.trials import PROPER_TRIALS, TRIALS


def by_name(*tables: list[Violator]) -> dict[str, Violator]:
    """The rows of some tables, by name."""
    rows = [row for table in tables for row in table]
    names = {row.name: row for row in rows}
    assert len(names) == len(rows), "two rows have the same name"
    return names


VIOLATORS = by_name(
    NOISE, REUSE, SENSITIVITY, RAW_DATA, RARE, REPORTS, HIDDEN, OUTCOMES, SLIPS, JOINT, TRIALS,
    SERVERS,
)  # fmt: skip
PROVED_CONTROLS = by_name(PROVED)  # replay proves them
UNUSUAL_CONTROLS = by_name(UNUSUAL, CAREFUL, PROPER_TRIALS)  # replay may leave them unproved
