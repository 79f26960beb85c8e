"""`bl.Status`: the counts that an agent displays."""

from dataclasses import dataclass

from balaclava._core.number_format import counted


@dataclass(frozen=True)
class Status:
    """Counts of an agent's decisions, for its operator.

    With `settle="arrival"` they count rewards that came, without noise: if only purchases are
    told, `rewards` is the number of buyers. With `settle="window"` nothing depends on when or
    whether a reward came: `rewards`, `cancelled` and `given_up` are None, `open` counts windows
    that have not ended, and `closed` those that have.
    """

    decisions: int
    rewards: int | None
    open: int
    cancelled: int | None
    given_up: int | None
    closed: int | None
    unlearned: int  # decisions that the policy does not learn from
    oldest_open: str | None  # the id of the oldest open decision
    oldest_wait: int  # further decisions since
    releases: int | None  # None for policies that release decisions only
    awaited: str  # the next event, in words

    def __str__(self) -> str:
        parts = [counted(self.decisions, "decision")]
        if self.closed is None:
            parts += [counted(self.rewards or 0, "reward"), f"{self.given_up} given up"]
            if self.cancelled:
                parts.append(f"{self.cancelled} cancelled")
        else:
            parts.append(f"{counted(self.closed, 'window')} closed")
        parts.append(f"{self.open} open")
        if self.unlearned:
            parts.append(f"{self.unlearned} not learned from")
        if self.releases is not None:
            parts.append(f"{counted(self.releases, 'release')} so far")
        return f"{', '.join(parts)}; {self.awaited}."
