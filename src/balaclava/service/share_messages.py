"""What devices, the decider and the two aggregators of an experiment say to each other.

A task is what an aggregator knows of an experiment; its id is the experiment's uid. The decider
relays between the aggregators, which need no connection to each other. They share a key that the
decider does not have, with which they sign which shares they lack.
"""

import hashlib
import hmac
from collections.abc import Iterable
from typing import Any

from balaclava.policies.base import Policy
from balaclava.privacy.exact_noise import GRID_BITS
from balaclava.privacy.secret_shares import (
    GRID_STEPS,
    check_share,
    combine,
    modulus_bits,
    possible_sums,
)
from balaclava.service.credentials import Vault

# Decisions of a batch: 25 MB of ids. The decider gives up those beyond it.
MOST_IN_BATCH = 1_000_000
LARGEST_MESSAGE = 64_000_000  # bytes, of a request or an answer: twice that many ids, with room
# Chance that a release wraps and is a random number. It costs no privacy.
_TASK_WRAP_CHANCE = 2.0**-40


TICKETS, DECIDER = "split tickets", "split decider"  # purposes of secrets: never change them
# Part of the reward window after which devices send; the rest is for retries. A guess.
SEND_AFTER = 0.75


def split_secret(vault: Vault, definition: Any, purpose: str) -> str:
    """A secret of the decider for the aggregators of an experiment; nothing is stored."""
    return vault.digest(purpose, definition.uid)


def share_rule(definition: Any, policy: Policy) -> dict[str, Any]:
    """What report.js needs to send shares of an experiment's rewards."""
    low, high = policy.parameters["reward_range"]
    return {
        "kind": "shares",
        "epsilon": policy.parameters["epsilon"],
        "range": [low, high],
        "default": definition.default_reward,
        "grid_bits": GRID_BITS,
        "modulus_bits": task_bits(policy.parameters["epsilon"]),
        "send_after": SEND_AFTER * definition.reward_window,
        "addresses": [
            f"{url.rstrip('/')}/v1/tasks/{definition.uid}/shares" for url in definition.aggregators
        ],
    }


def task_documents(definition: Any, policy: Policy, vault: Vault) -> list[dict[str, Any]]:
    """What the operators of the aggregators need, but for the key that they agree on."""
    rule = share_rule(definition, policy)
    terms = {name: rule[name] for name in ("epsilon", "range", "default", "modulus_bits")}
    tickets = split_secret(vault, definition, TICKETS)
    return [
        {
            "aggregator": url,
            "uid": definition.uid,
            "task": {
                "side": side,
                **terms,
                "decider_key": decider_key(vault, definition, side),
                "ticket_key": tickets,
            },
        }
        for side, url in enumerate(definition.aggregators)
    ]


def decider_key(vault: Vault, definition: Any, side: int) -> str:
    """The key with which the decider asks an aggregator for releases."""
    return split_secret(vault, definition, f"{DECIDER} {side}")


def task_bits(epsilon: float) -> int:
    """Bits of a share, for batches of MOST_IN_BATCH rewards."""
    return modulus_bits(MOST_IN_BATCH, GRID_STEPS, epsilon, _TASK_WRAP_CHANCE)


def sum_of_rewards(releases: Iterable[str], size: int, epsilon: float) -> int | None:
    """The noisy sum of a batch in grid steps, from both releases.

    None if `size` rewards and noise do not reach it: a device sent shares of another number, or an
    aggregator released one. It follows from the releases alone.
    """
    bits = task_bits(epsilon)
    one, other = (read_share(text, bits) for text in releases)
    total = combine(one, other, bits)
    least, most = possible_sums(size, GRID_STEPS, epsilon, _TASK_WRAP_CHANCE)
    return total if least <= total <= most else None


def read_share(text: str, bits: int) -> int:
    """A share from its text. Raises `ParameterError` if it is out of range."""
    return check_share(int(text, 16), bits)


def ticket(key: str, decision_id: str) -> str:
    """What shows an aggregator that the decider made a decision; others cannot fill its disk."""
    return hmac.digest(key.encode(), decision_id.encode(), "sha256").hex()[:32]


def ids_digest(ids: Iterable[str]) -> str:
    """The digest of a set of decision ids."""
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()


def statement(
    key: str, task: str, side: int, label: str, proposed: Iterable[str], missing: Iterable[str]
) -> str:
    """An aggregator's word, for the other one, on which proposed decisions it has no share of."""
    parts = (task, str(side), label, ids_digest(proposed), ids_digest(missing))
    return hmac.digest(key.encode(), "\n".join(parts).encode(), "sha256").hex()
