"""The signed snapshot: what a decider without a database needs, published by the service.

It has finished experiments of scopes "trajectory" and "report": labels, the share of persons that
each arm gets, and a salt of its own, by which persons are assigned. Their decisions follow from
released values, which may be published. The state of scope "decision" is raw and is left out, as is
every running experiment. It has no person, no digest of one, and nothing that a reward changes.

Ed25519 (RFC 8032) signs the content. The signing key is derived from the service's secret key. A
snapshot expires. The order of snapshots is (issued, number of flags): finished experiments stay
finished, so at one time of issue the snapshot with more flags is the newer one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
from typing import Any, NamedTuple

from balaclava._core.extras import import_extra
from balaclava.errors import BalaclavaError
from balaclava.service.credentials import Vault
from balaclava.service.engine.contexts import takes_features
from balaclava.service.engine.served_experiment import FINISHED, ServedExperiment
from balaclava.service.problems import Problem

FORMAT, VERSION = "balaclava-snapshot", 1
# Seconds. Between two signatures of the same content, so that its ETag stays; and until it expires:
# longer than most outages of the service, and a limit for replays of an old snapshot.
ISSUE_SECONDS, LIFE_SECONDS = 3_600, 86_400
_DOMAIN = b"balaclava snapshot\0"  # of signatures: never change it
_PUBLISHED = ("trajectory", "report")  # scopes whose deciding state is released


class SnapshotError(BalaclavaError):
    """A snapshot is damaged, forged, expired, or older than one that was seen."""


class FlagShares(NamedTuple):
    """The arms of a finished experiment, and the share of persons that each gets."""

    labels: list[str]
    shares: list[float]


class EdgeSnapshot(NamedTuple):
    """A verified snapshot."""

    issued: float
    expires: float
    salt: str
    flags: dict[str, FlagShares]

    @property
    def order(self) -> tuple[float, int]:
        """Grows from each snapshot to a newer one."""
        return self.issued, len(self.flags)

    def arm(self, name: str, person: str) -> int:
        """The person's arm, by a digest of the person and the snapshot's salt."""
        text = "\0".join((self.salt, name, person)).encode("utf-8", "surrogatepass")
        place = int.from_bytes(hashlib.sha256(text).digest()[:6], "big") / 2**48
        shares = self.flags[name].shares
        for arm, share in enumerate(shares):
            if place < share:
                return arm
            place -= share
        return max(arm for arm, share in enumerate(shares) if share > 0)


def publish(vault: Vault, experiments: list[ServedExperiment], now: float) -> bytes:
    """Sign a snapshot of the experiments that may be published."""
    issued = now // ISSUE_SECONDS * ISSUE_SECONDS
    flags = {}
    for experiment in experiments:
        if experiment.state != FINISHED or experiment.policy.scope not in _PUBLISHED:
            continue
        if experiment.definition.targeting is not None:
            continue  # an edge knows no attributes
        if takes_features(experiment.policy) and experiment.chosen_arm is None:
            continue  # its arm depends on features
        shares = [0.0] * experiment.policy.arms
        held_out = experiment.definition.held_out
        shares[experiment.served()] = 1.0
        if held_out is not None:
            shares[experiment.served()] -= held_out["share"]
            shares[experiment.arms.index(held_out["arm"])] += held_out["share"]
        flags[experiment.definition.name] = {"labels": experiment.arms, "shares": shares}
    content = {
        "format": FORMAT,
        "version": VERSION,
        "issued": issued,
        "expires": issued + LIFE_SECONDS,
        "salt": vault.digest("snapshot salt", ""),
        "flags": flags,
    }
    text = json.dumps(content, sort_keys=True).encode()
    seed = bytes.fromhex(vault.digest("snapshot signature", ""))
    key = _ed25519().Ed25519PrivateKey.from_private_bytes(seed)
    signature = key.sign(_DOMAIN + text)
    document = {
        "content": base64.b64encode(text).decode(),
        "signature": base64.b64encode(signature).decode(),
        "public_key": base64.b64encode(key.public_key().public_bytes_raw()).decode(),
    }
    return json.dumps(document).encode()


def verify(
    document: bytes, public_key: str, now: float, newest: EdgeSnapshot | None = None
) -> EdgeSnapshot:
    """Check a snapshot against the pinned public key, and against the newest one that was seen."""
    keys = _ed25519().Ed25519PublicKey
    forged = import_extra("cryptography.exceptions", "the signed snapshot").InvalidSignature
    try:
        fields = json.loads(document)
        text = base64.b64decode(fields["content"], validate=True)
        signature = base64.b64decode(fields["signature"], validate=True)
        key = keys.from_public_bytes(base64.b64decode(public_key, validate=True))
        key.verify(signature, _DOMAIN + text)
    except forged:
        raise SnapshotError("the snapshot's signature is not of the given public key") from None
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise SnapshotError("this is not a signed snapshot, or not a public key") from error
    content = json.loads(text)
    if (content["format"], content["version"]) != (FORMAT, VERSION):
        raise SnapshotError(
            f"this version reads snapshots of version {VERSION}, not {content['version']!r}"
        )
    flags = {name: _checked_flag(flag) for name, flag in content["flags"].items()}
    snapshot = EdgeSnapshot(content["issued"], content["expires"], content["salt"], flags)
    if snapshot.expires <= now:
        raise SnapshotError("the snapshot has expired; fetch a new one, and check the clock")
    if newest is not None and snapshot.order < newest.order:
        raise SnapshotError("the snapshot is older than one that was seen; it is not used")
    return snapshot


def _checked_flag(flag: dict[str, Any]) -> FlagShares:
    labels, shares = flag["labels"], flag["shares"]
    if len(labels) != len(shares) or not math.isclose(math.fsum(shares), 1.0, abs_tol=1e-9):
        raise SnapshotError("the shares of a flag do not sum to 1")
    return FlagShares(labels, shares)


def require_signatures() -> None:
    """Raise a `Problem` if the extra for signatures is not installed."""
    try:
        _ed25519()
    except BalaclavaError as error:
        raise Problem(501, str(error)) from None


def _ed25519() -> Any:
    module = "cryptography.hazmat.primitives.asymmetric.ed25519"
    return import_extra(module, "the signed snapshot")
