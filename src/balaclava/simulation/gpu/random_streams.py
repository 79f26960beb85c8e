"""The device's `rng`: a type with numpy's methods, drawn by Philox."""

from collections.abc import Callable
from typing import Any

from numba.cuda import cgutils, types
from numba.cuda.datamodel import models
from numba.cuda.extending import intrinsic, make_attribute_wrapper, overload_method, register_model

from balaclava.simulation.gpu import philox_draws as draws

METHODS: dict[str, Callable[..., Any]] = {
    "random": lambda rng: draws.uniform(rng.key, rng.place, rng.memory),
    "integers": lambda rng, low, high: draws.integer(rng.key, rng.place, rng.memory, low, high),
    "laplace": lambda rng, loc, scale: draws.laplace(rng.key, rng.place, rng.memory, loc, scale),
    "standard_exponential": lambda rng: draws.exponential(rng.key, rng.place, rng.memory),
    "standard_normal": lambda rng: draws.normal(rng.key, rng.place, rng.memory),
    "standard_gamma": lambda rng, shape: draws.gamma(rng.key, rng.place, rng.memory, shape),
    "beta": lambda rng, a, b: draws.beta(rng.key, rng.place, rng.memory, a, b),
    "standard_t": lambda rng, df: draws.student_t(rng.key, rng.place, rng.memory, df),
    "standard_cauchy": lambda rng: draws.cauchy(rng.key, rng.place, rng.memory),
}


class DeviceRandom(types.Type):  # type: ignore[misc]
    """A random stream, as described in `philox_draws`."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        super().__init__(name=f"DeviceRandom({memory})")


@register_model(DeviceRandom)
class _DeviceRandomModel(models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: DeviceRandom) -> None:
        members = [("key", types.uint64), ("place", types.uint64), ("memory", kind.memory)]
        super().__init__(manager, kind, members)


for _member in ("key", "place", "memory"):
    make_attribute_wrapper(DeviceRandom, _member, _member)


def _typed(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a draw for `overload_method`: a function with as many parameters that returns it."""
    return (
        lambda rng: draw,
        lambda rng, first: draw,
        lambda rng, first, second: draw,
    )[draw.__code__.co_argcount - 1]


for _name, _draw in METHODS.items():
    overload_method(DeviceRandom, _name, target="cuda", strict=False)(_typed(_draw))


@intrinsic  # type: ignore[untyped-decorator]
def device_random(context: Any, key: Any, place: Any, memory: Any) -> Any:
    """The `rng` of one game; `memory` is updated in place."""
    kind = DeviceRandom(memory)

    def generate(ctx: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        stream = cgutils.create_struct_proxy(kind)(ctx, builder)
        stream.key, stream.place, stream.memory = arguments
        return stream._getvalue()

    return kind(types.uint64, types.uint64, memory), generate
