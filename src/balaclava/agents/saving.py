"""Saved agents: their digest, and checks of every value on restore.

The digest detects accidents and careless editing. It does not detect forgery: keep a save as safe
as the rewards in it.

A state is stored by the names and the order of its fields. To rename a field of any state, declare
the name that saves know it by: `@stored_as(new="old")` from `balaclava._core.states` on the state.
"""

import base64
import hashlib
import itertools
import json
import math
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from balaclava._core.declared import brief
from balaclava._core.states import MOST_PLANNED, stored_name
from balaclava.errors import SavedStateError
from balaclava.policies.base import Policy

SCHEMA = 2  # version of saves; the names and the order of a state's fields are part of it
_OUTLINE_BYTES = 16
# Elements of the arrays that are compressed. Below it gains little; larger ones are saved as they
# are, so that the length of a save bounds what it unpacks to.
LEAST_COMPRESSED, MOST_COMPRESSED = 1_000, 10**6
_CONFIDENTIAL = "holds rewards or sums of them: keep it as secret as the rewards themselves"


class DamageError(ValueError):
    """An invalid part of a saved agent. Names the part, never its values."""


def seal(content: dict[str, Any]) -> dict[str, Any]:
    """Add the schema, a warning for readers, and a digest of all."""
    whole = {"schema": SCHEMA, "confidential": _CONFIDENTIAL, **content}
    return {**whole, "digest": content_digest(whole)}


def content_digest(saved: dict[str, Any]) -> str:
    """The digest of all but itself; the order of keys does not matter."""
    content = {key: value for key, value in saved.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def unseal(saved: Any) -> dict[str, Any]:
    """Check the schema and the digest of a save; returns its content."""
    if not isinstance(saved, dict):
        raise SavedStateError(
            f"a saved agent is a dict, but got a {type(saved).__name__}; give what agent.save() "
            "returned"
        )
    schema = saved.get("schema")
    if schema != SCHEMA or isinstance(schema, bool):
        raise SavedStateError(
            f"the agent was saved with schema {brief(schema)}, but this version reads schema "
            f"{SCHEMA}; restore it with the version that saved it"
        )
    if saved.get("confidential") != _CONFIDENTIAL or saved.get("digest") != content_digest(saved):
        raise SavedStateError(
            "the saved agent was changed after it was saved: its digest does not match; use an "
            "intact copy"
        )
    return {key: saved[key] for key in saved.keys() - {"schema", "confidential", "digest"}}


def exact_keys(value: Any, *keys: str) -> dict[str, Any]:
    """Require a dict with exactly these keys."""
    if not isinstance(value, dict) or set(value) != set(keys):
        raise DamageError("the keys are not those of a save")
    return value


def checked_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise DamageError("a list is missing")
    return value


def whole_number(value: Any, low: int, high: int) -> int:
    """Require an int in a range; a bool or a float is not one."""
    if type(value) is not int or not low <= value <= high:
        raise DamageError("a number is out of its range")
    return value


def finite_number(value: Any) -> float:
    if type(value) is not float or not math.isfinite(value):
        raise DamageError("a number is not finite")
    return value


def stored_arrays(
    state: Any, prefix: str = "", *, earlier: bool = False
) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of a state and of the states in it, by their names in saves.

    With `earlier` those of a save of an earlier version, without the fields `added_later`.
    """
    added = getattr(state, "_added_fields", ()) if earlier else ()
    for field, part in zip(state._fields, state, strict=True):
        name = stored_name(type(state), field)
        if isinstance(part, np.ndarray):
            if field not in added:
                yield prefix + name, part
        else:
            yield from stored_arrays(part, f"{prefix}{name}.", earlier=earlier)


def pack_state(state: Any) -> dict[str, Any]:
    """All arrays of a state, as strings; compressed ones under the key "deflated"."""
    return {name: _packed(array) for name, array in stored_arrays(state)}


def _packed(array: np.ndarray) -> dict[str, Any]:
    key, content = "data", np.ascontiguousarray(array).tobytes()
    if LEAST_COMPRESSED <= array.size <= MOST_COMPRESSED:
        shorter = zlib.compress(content)
        key, content = min(("data", content), ("deflated", shorter), key=lambda each: len(each[1]))
    shape, text = list(array.shape), base64.b64encode(content).decode()
    return {"dtype": array.dtype.str, "shape": shape, key: text}


def _unpacked(saved: dict[str, Any], size: int) -> bytes:
    """The content of a packed array of `size` bytes; never much more than that."""
    if "data" in saved:
        return base64.b64decode(saved["data"], validate=True)
    if size > 8 * MOST_COMPRESSED:
        raise DamageError("a large array is compressed")
    try:
        return zlib.decompressobj().decompress(
            base64.b64decode(saved["deflated"], validate=True), size + 1
        )
    except zlib.error:
        raise DamageError("an array cannot be decompressed") from None


def packed_numbers(packed: Any) -> int:
    """An upper bound on the numbers in the large arrays of a packed state."""
    return sum(len(array.get("data", "")) for array in packed.values())


def fill_state(policy: Policy, state: Any, packed: dict[str, Any], decisions: int) -> None:
    """Restore a packed state into a fresh one, with all checks."""
    arrays = dict(stored_arrays(state))
    earlier = set(packed) < set(arrays)
    if earlier:
        arrays = dict(stored_arrays(state, earlier=True))
    exact_keys(packed, *arrays)
    for name, array in arrays.items():
        saved = packed[name]
        exact_keys(saved, "dtype", "shape", "deflated" if "deflated" in saved else "data")
        shape = [whole_number(length, 0, MOST_PLANNED) for length in checked_list(saved["shape"])]
        if saved["dtype"] != array.dtype.str or shape != list(array.shape):
            raise SavedStateError(
                f"the saved state's {name!r} has another shape or type than in this version; "
                "restore it with the version that saved it"
            )
        _fill(name, array, _unpacked(saved, array.nbytes))
    if earlier:
        policy.fill_added(state)
    require_invariants(policy, state, decisions)


class StateBytes:
    """All arrays of a state, compressed, after a digest of their layout: as often as asked.

    A state's arrays change in place, so they are looked up once.
    """

    def __init__(self, state: Any) -> None:
        arrays = dict(stored_arrays(state))
        self.state, self._arrays, self._outline = state, list(arrays.values()), _outline(arrays)

    def read(self) -> bytes:
        """The bytes of the state as it is now."""
        content = b"".join([array.tobytes() for array in self._arrays])
        return self._outline + zlib.compress(content, 1)


def fill_from_bytes(policy: Policy, state: Any, data: bytes, decisions: int) -> None:
    """Restore what `StateBytes` read into a fresh state, with all checks."""
    arrays, outline = dict(stored_arrays(state)), data[:_OUTLINE_BYTES]
    earlier = outline != _outline(arrays)
    if earlier:
        arrays = dict(stored_arrays(state, earlier=True))
    if earlier and outline != _outline(arrays):
        raise SavedStateError(
            "the stored state has another layout than in this version; continue with the version "
            "that stored it"
        )
    try:
        content = zlib.decompress(data[len(outline) :])
    except zlib.error:
        raise SavedStateError("the stored state is damaged; use an intact copy") from None
    if len(content) != sum(array.nbytes for array in arrays.values()):
        raise SavedStateError("the stored state is damaged; use an intact copy")
    start = 0
    for name, array in arrays.items():
        _fill(name, array, content[start : start + array.nbytes])
        start += array.nbytes
    if earlier:
        policy.fill_added(state)
    require_invariants(policy, state, decisions)


def _outline(arrays: dict[str, np.ndarray]) -> bytes:
    """A digest of names, types and shapes."""
    text = repr([(name, array.dtype.str, array.shape) for name, array in arrays.items()])
    return hashlib.sha256(text.encode()).digest()[:_OUTLINE_BYTES]


def _fill(name: str, fresh: np.ndarray, data: bytes) -> None:
    """Restore a fresh array. Refuse values that no array may hold; `faults` checks each range."""
    values = np.frombuffer(data, dtype=fresh.dtype).reshape(fresh.shape)
    if values.size == 0:
        return
    if values.dtype == np.bool_ and (values.view(np.uint8) > 1).any():
        raise DamageError(f"{name} holds a value other than true and false")
    if values.dtype.kind == "f":
        if not np.isfinite(values).all() and np.isfinite(fresh).all():
            raise DamageError(f"{name} holds a number that is not finite")
    elif values.dtype.kind in "iu":
        low, high = min(-1, int(fresh.min())), max(MOST_PLANNED, int(fresh.max()))
        if values.min() < low or values.max() > high:
            raise DamageError(f"{name} holds a number out of its range")
    fresh[...] = values


def require_invariants(policy: Policy, state: Any, decisions: int) -> None:
    """Raise the first fault of the state, of the states in it, or of the policy."""
    for fault in itertools.chain(_faults(state, decisions), policy.faults(state, decisions)):
        raise DamageError(fault)  # at once: later checks assume earlier ones


def _faults(state: Any, decisions: int) -> Iterator[str]:
    if hasattr(state, "faults"):
        yield from state.faults(decisions)
    for part in state:
        if hasattr(part, "_fields"):
            yield from _faults(part, decisions)


def plain_generator(generator: np.random.Generator) -> dict[str, Any]:
    """The state of a seeded generator, JSON-able."""
    state = generator.bit_generator.state
    return {**state, "state": {"state": [int(word) for word in state["state"]["state"]]}}


def set_generator(generator: np.random.Generator, saved: Any) -> None:
    """Restore the state of a generator."""
    fresh = generator.bit_generator.state
    exact_keys(saved, *fresh)
    words = exact_keys(saved["state"], "state")["state"]
    if saved["bit_generator"] != fresh["bit_generator"] or len(words) != len(
        fresh["state"]["state"]
    ):
        raise DamageError("the generator is of another kind")
    words = [whole_number(word, 0, 2**64 - 1) for word in words]
    generator.bit_generator.state = {
        "bit_generator": fresh["bit_generator"],
        "state": {"state": np.array(words, dtype=np.uint64)},
        "has_uint32": whole_number(saved["has_uint32"], 0, 1),
        "uinteger": whole_number(saved["uinteger"], 0, 2**32 - 1),
    }
