"""Two aggregators in this process, and what devices and a decider send them."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from balaclava.privacy.secret_shares import GRID_STEPS, combine, reward_steps, share_text, split
from balaclava.service import share_messages as messages
from balaclava.service.aggregator_app import create_aggregator_app
from balaclava.service.service import Service

TASK = "5" * 64
EPSILON = 1e6  # next to no noise, so that sums can be compared
DECIDER_KEY, TICKET_KEY, PEER_KEY = "d" * 32, "t" * 32, "p" * 32


def task_terms(side: int, **more: Any) -> dict[str, Any]:
    """What an operator gives an aggregator."""
    terms = {
        "side": side,
        "epsilon": EPSILON,
        "range": [0.0, 1.0],
        "default": 0.0,
        "decider_key": DECIDER_KEY,
        "ticket_key": TICKET_KEY,
        "peer_key": PEER_KEY,
    } | more
    return {"modulus_bits": messages.task_bits(terms["epsilon"]), **terms}


def share_body(share: int, ticket: str, epsilon: float, bits: int) -> dict[str, Any]:
    """What a device sends to one aggregator."""
    terms = {"epsilon": epsilon, "modulus_bits": bits}
    return {"share": share_text(share, bits), "ticket": ticket, **terms}


def decision_id(rng: random.Random) -> str:
    return base64.urlsafe_b64encode(rng.randbytes(18))[:22].decode()


def open_aggregator(folder: Path, side: int, **more: Any) -> Service:
    """The database of an aggregator, in a folder of its own."""
    mine = folder / f"aggregator-{side}"
    mine.mkdir(exist_ok=True)
    return Service.open(str(mine / "aggregator.db"), **more)


class Pair:
    """Two aggregators with one task."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.epsilon, self.bits = (task_terms(0, **more)[x] for x in ("epsilon", "modulus_bits"))
        self.services = [open_aggregator(folder, side) for side in (0, 1)]
        self.clients = [
            TestClient(create_aggregator_app(s, keys=False), "http://localhost")
            for s in self.services
        ]
        for side, client in enumerate(self.clients):
            assert client.put(f"/v1/tasks/{TASK}", json=task_terms(side, **more)).is_success

    def close(self) -> None:
        for service in self.services:
            service.close()

    def send(self, id: str, share: int, side: int, more: Any = ()) -> Any:
        body = self.share_body(share, messages.ticket(TICKET_KEY, id)) | dict(more)
        return self.clients[side].put(f"/v1/tasks/{TASK}/shares/{id}", json=body)

    def share_body(self, share: int, ticket: str) -> dict[str, Any]:
        return share_body(share, ticket, self.epsilon, self.bits)

    def share(self, rewards: Mapping[str, float], sides: Sequence[int] = (0, 1)) -> None:
        """Send what the devices send."""
        for id, reward in rewards.items():
            shares = split(reward_steps(reward), self.bits)
            for side in sides:
                assert self.send(id, shares[side], side).json() == {"recorded": True}

    def post(self, side: int, method: str, path: str, body: Any, key: str = DECIDER_KEY) -> Any:
        headers = {"authorization": f"Bearer {key}"}
        address = f"/v1/tasks/{TASK}/batches/{path}"
        return self.clients[side].request(method, address, json=body, headers=headers)

    def fix(self, side: int, label: str, ids: Iterable[str]) -> Any:
        return self.post(side, "PUT", label, {"ids": list(ids)})

    def release(self, side: int, label: str, ids: Iterable[str], others: Any) -> Any:
        return self.post(side, "POST", f"{label}/release", {"ids": list(ids), **others})

    def collect(self, label: str, ids: Sequence[str]) -> tuple[int, float]:
        """The size and the noisy sum of a batch, as an honest decider asks for it."""
        fixed = [self.fix(side, label, ids).json() for side in (0, 1)]
        sums = [self.release(side, label, ids, fixed[1 - side]).json() for side in (0, 1)]
        assert (sums[0]["size"], sums[0]["agreed"]) == (sums[1]["size"], sums[1]["agreed"])
        steps = combine(*(int(each["noisy_sum"], 16) for each in sums), self.bits)
        return sums[0]["size"], steps / GRID_STEPS
