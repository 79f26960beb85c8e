"""Declared parameters: one line each for checks, help, documentation and files.

A policy or an environment lists its parameters as annotated fields. The annotation states the
allowed range::

    epsilon: Epsilon                  # required
    radius_scale: RadiusScale = 1.0   # optional
"""

import dataclasses
import inspect
import math
import sys
import types
import typing
from collections import namedtuple
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, dataclass_transform

import numpy as np

from balaclava.errors import ParameterError, nearest

_Params = TypeVar("_Params")


@dataclass(frozen=True)
class Range:
    """The allowed values of a number, and its meaning."""

    low: float = -math.inf
    high: float = math.inf
    meaning: str = ""
    open_low: bool = False
    open_high: bool = False
    or_zero: bool = False

    def __contains__(self, value: float) -> bool:
        if self.or_zero and value == 0:
            return True
        above = value > self.low if self.open_low or self.low == -math.inf else value >= self.low
        below = value < self.high if self.open_high or self.high == math.inf else value <= self.high
        return above and below

    def __str__(self) -> str:
        return f"0 or {self._interval()}" if self.or_zero else self._interval()

    def _interval(self) -> str:
        if self.low == -math.inf and self.high == math.inf:
            return "a finite number"
        if self.high == math.inf:
            return f"{'above' if self.open_low else 'at least'} {self.low:g}"
        if self.low == -math.inf:
            return f"{'below' if self.open_high else 'at most'} {self.high:g}"
        left, right = "(" if self.open_low else "[", ")" if self.open_high else "]"
        return f"in {left}{self.low:g}, {self.high:g}{right}"


LARGEST_FLOAT = sys.float_info.max
MOST_ROUNDS = 10**18  # below 2**62, so that 64-bit integers can count and add rounds
Arms = Annotated[int, Range(1, meaning="number of arms, K")]
Horizon = Annotated[int, Range(1, MOST_ROUNDS, "number of rounds that will be played, T")]
# Between these an epsilon, its square, its cube and their inverses stay finite, also multiplied by
# MOST_ROUNDS. Sensible values are between 0.001 and 100.
SMALLEST_EPSILON, LARGEST_EPSILON = 1e-100, 1e100
Epsilon = Annotated[float, Range(SMALLEST_EPSILON, LARGEST_EPSILON, "privacy loss")]
EpsilonOrZero = Annotated[
    float, Range(SMALLEST_EPSILON, LARGEST_EPSILON, "privacy loss", or_zero=True)
]
ReleaseEpsilon = Annotated[float, Range(0, meaning="privacy loss of one release")]
Sensitivity = Annotated[
    float, Range(0, meaning="largest change of a value by one reward", open_low=True)
]
Delta = Annotated[
    float, Range(0, 1, "probability that the privacy loss is exceeded", open_high=True)
]
MomentOrder = Annotated[float, Range(1, meaning="order of the known moment", open_low=True)]
MomentBound = Annotated[float, Range(0, meaning="bound on the moment", open_low=True)]
MeanRange = Annotated[float, Range(0, meaning="largest absolute mean", open_low=True)]
Contamination = Annotated[float, Range(0, 0.5, "bound on the share of outliers", open_high=True)]
Experts = Annotated[int, Range(1, meaning="number of experts, N")]
RadiusScale = Annotated[
    float,
    Range(0, meaning="factor of the confidence radii; does not affect privacy", open_low=True),
]
FailureProbability = Annotated[
    float, Range(0, 1, "probability that a confidence bound fails", open_low=True, open_high=True)
]
Means = Annotated[np.ndarray, Range(meaning="mean of each arm"), 1]
PositiveMeans = Annotated[np.ndarray, Range(0, meaning="mean of each arm", open_low=True), 1]
RewardRange = Annotated[
    tuple[float, float], Range(meaning="smallest and largest reward; rescaled to [0, 1]")
]
Outside = Annotated[
    typing.Literal["refuse", "clip"],
    Range(meaning="whether a reward outside the range is refused or clipped to it"),
]


if typing.TYPE_CHECKING:
    overridable = property
else:

    class overridable:  # noqa: N801
        """A property that a subclass may replace by a parameter of the same name."""

        def __init__(self, default: typing.Callable[[Any], Any]) -> None:
            self.default, self.__doc__ = default, default.__doc__

        def __get__(self, instance: Any, owner: type) -> Any:
            return self if instance is None else self.default(instance)


class ParameterEntry(NamedTuple):
    """A parameter in words: an entry of `parameter_list`."""

    name: str
    required: bool
    default: Any
    allowed: str
    meaning: str


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Declared:
    """An immutable, keyword-only record of checked parameters."""

    kind: ClassVar[str]
    name: ClassVar[str]
    reference: ClassVar[str] = ""  # the paper: its authors and year
    cites: ClassVar[str] = ""  # papers for the docstring, in place of `reference`: "A 2001; B 2002"
    see_also: ClassVar[str] = ""  # names of related classes, for the docstring
    Params: ClassVar[type[tuple[Any, ...]]]
    derived_constants: ClassVar[tuple[str, ...]] = ()  # attributes in Params beside the parameters
    annotations: ClassVar[dict[str, Any]]
    # Parameters for the conformance suite; usual values fill the gaps.
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({},)

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        for name in inspect.get_annotations(cls):
            # Otherwise the overridden property would be the default of a required parameter.
            if isinstance(getattr(cls, name, None), overridable):
                setattr(cls, name, dataclasses.field())
        dataclass(frozen=True, kw_only=True, eq=False)(cls)
        names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        hints = inherited_annotations(cls) | own_annotations(cls, names, definition_frame())
        cls.annotations = {name: hints[name] for name in names}
        # Named, so that compiled code can be cached. Kernels see numbers and arrays, not strings.
        numbers = [name for name in names if not is_choice(hints[name])]
        params = namedtuple("Params", [*numbers, *cls.derived_constants])  # type: ignore[misc]
        params.__module__, params.__qualname__ = cls.__module__, f"{cls.__qualname__}.Params"
        cls.Params = params

    def __post_init__(self) -> None:
        for name, annotation in self.annotations.items():
            value = check(self._label(name), getattr(self, name), annotation)
            object.__setattr__(self, name, value)

    def _label(self, parameter: str) -> str:
        return f"{getattr(self, 'name', type(self).__name__)}: {parameter}"

    def refuse(self, parameter: str, why: str) -> ParameterError:
        """The error for a parameter that is in its range but does not fit the others.

        Args:
            parameter: its name.
            why: what is wrong and what to do, after "name = value ".
        """
        return ParameterError(f"{self._label(parameter)} = {brief(getattr(self, parameter))} {why}")

    @classmethod
    def create(cls, parameters: dict[str, Any]) -> typing.Self:
        """Build an object; `ParameterError` for an unknown, missing or invalid parameter."""
        fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
        for name in parameters:
            if name not in fields:
                raise ParameterError(
                    f"{cls.name}: unknown parameter {name!r}; {nearest(name, fields)}"
                )
        for name, field in fields.items():
            if name not in parameters and is_required(field):
                raise ParameterError(
                    f"{cls.name}: parameter {name!r} is missing; it must be "
                    f"{describe(cls.annotations[name])}"
                )
        return cls(**parameters)

    @classmethod
    def parameter_list(cls) -> list[ParameterEntry]:
        """All parameters in words, for help and documentation."""
        return [
            ParameterEntry(
                field.name,
                is_required(field),
                None if is_required(field) else field.default,
                describe(cls.annotations[field.name]),
                meaning(cls.annotations[field.name]),
            )
            for field in dataclasses.fields(cls)  # type: ignore[arg-type]
        ]

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters as JSON-able values; `create` builds an equal object from them."""
        return {name: plain(getattr(self, name)) for name in self.annotations}

    def constants(self) -> Any:
        """The `params` of the kernels: all parameters but strings, and what is derived."""
        return self.Params(*(getattr(self, name) for name in self.Params._fields))  # type: ignore[attr-defined]

    def fill(self, params: type[_Params], **derived: Any) -> _Params:
        """A named tuple for the kernels: fields from `derived`, the others from attributes."""
        fields: tuple[str, ...] = params._fields  # type: ignore[attr-defined]
        return params(**{n: derived[n] if n in derived else getattr(self, n) for n in fields})

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.parameters == other.parameters

    def __hash__(self) -> int:
        return hash((type(self), repr(self.parameters)))


def inherited_annotations(cls: type[Declared]) -> dict[str, Any]:
    """The declared parameters of the base classes."""
    bases = [vars(base).get("annotations", {}) for base in reversed(cls.__mro__[1:])]
    return {name: annotation for known in bases for name, annotation in known.items()}


def definition_frame() -> types.FrameType:
    """The frame of the class definition that runs `__init_subclass__`, which bases may extend."""
    frame = sys._getframe(1)
    while frame.f_code.co_name == "__init_subclass__" and frame.f_back is not None:
        frame = frame.f_back
    return frame


def own_annotations(
    cls: type[Declared], names: list[str], place: types.FrameType
) -> dict[str, Any]:
    """The parameters that a class adds; `place` is the frame of its definition."""
    own = {name: kind for name, kind in inspect.get_annotations(cls).items() if name in names}
    holder: Any = types.SimpleNamespace(__annotations__=own)
    return typing.get_type_hints(holder, place.f_globals, place.f_locals, include_extras=True)


def is_choice(annotation: Any) -> bool:
    """Whether a parameter is one of a few strings."""
    return typing.get_origin(split(annotation)[0]) is typing.Literal


def options(union: Any) -> tuple[list[Any], tuple[str, ...]]:
    """The types of a union but None, and the strings that it allows beside another type."""
    kinds = [option for option in typing.get_args(union) if option is not type(None)]
    others = [option for option in kinds if len(kinds) == 1 or not is_choice(option)]
    words = [word for option in kinds if option not in others for word in typing.get_args(option)]
    return others, tuple(words)


def is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def summary_line(thing: type) -> str:
    return (inspect.getdoc(thing) or "").split("\n", 1)[0]


def check(label: str, value: Any, annotation: Any) -> Any:
    """Convert a value to the type of an annotation, or raise `ParameterError`."""
    base, limits = split(annotation)
    origin = typing.get_origin(base)
    if origin in (typing.Union, types.UnionType):
        (rest,), words = options(base)
        if value is None and type(None) in typing.get_args(base):
            return None
        if isinstance(value, str) and value in words:
            return value
        try:
            return check(label, value, Annotated[rest, limits] if limits else rest)
        except ParameterError:
            raise refusal(label, value, annotation) from None
    if origin is typing.Literal:
        if value not in typing.get_args(base):
            raise refusal(label, value, annotation)
        return value
    if origin is tuple:
        return check_tuple(label, value, base, limits, annotation)
    if base is np.ndarray:
        return check_array(label, value, limits or Range(), annotation)
    if base is bool:
        if not isinstance(value, bool | np.bool_):
            raise refusal(label, value, annotation)
        return bool(value)
    if base in (int, float):
        return check_number(label, value, base, limits or Range(), annotation)
    if isinstance(base, type) and not isinstance(value, base):
        raise refusal(label, value, annotation)
    return value


def check_claim(epsilon: Any, delta: Any, kind: Any = EpsilonOrZero) -> tuple[float, float]:
    """Check an epsilon and a delta; refuse 0 for both."""
    epsilon, delta = check("epsilon", epsilon, kind), check("delta", delta, Delta)
    if epsilon == 0 and delta == 0:
        raise ParameterError(
            "epsilon = 0 with delta = 0 would mean decisions that do not depend on rewards at "
            "all; give an epsilon or a delta above 0"
        )
    return epsilon, delta


def check_number(label: str, value: Any, base: type, limits: Range, annotation: Any) -> Any:
    real = isinstance(value, int | float | np.integer | np.floating)
    if not real or isinstance(value, bool):
        raise refusal(label, value, annotation)
    exact = value.item() if isinstance(value, np.generic) else value
    if (
        not -LARGEST_FLOAT <= exact <= LARGEST_FLOAT
        or exact not in limits
        or (base is int and exact != int(exact))
    ):
        raise refusal(label, value, annotation)
    return base(exact)


def check_tuple(label: str, value: Any, base: Any, limits: Range | None, annotation: Any) -> Any:
    if isinstance(value, str | bytes | dict) or not hasattr(value, "__len__"):
        raise refusal(label, value, annotation)
    element, *rest = typing.get_args(base)
    fixed = bool(rest) and rest[0] is not Ellipsis
    if len(value) == 0 or (fixed and len(value) != 1 + len(rest)):
        raise refusal(label, value, annotation)
    inner = Annotated[element, limits] if limits and typing.get_origin(element) is None else element
    return tuple(check(f"{label}[{i}]", item, inner) for i, item in enumerate(value))


def check_array(label: str, value: Any, limits: Range, annotation: Any) -> np.ndarray:
    """A read-only float array with the declared number of dimensions."""
    dimensions = array_dimensions(annotation)
    try:
        if np.iscomplexobj(value):
            raise TypeError  # the conversion would drop the imaginary parts
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise refusal(label, value, annotation) from None
    if array.ndim != dimensions or array.size == 0:
        raise refusal(label, value, annotation)
    wrong = ~np.isfinite(array)
    wrong |= array <= limits.low if limits.open_low else array < limits.low
    wrong |= array >= limits.high if limits.open_high else array > limits.high
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        place = "".join(f"[{i}]" for i in where)
        raise refusal(f"{label}{place}", float(array[where]), annotation)
    array.flags.writeable = False
    return array


def array_dimensions(annotation: Any) -> int:
    """1 for a vector, 2 for a matrix."""
    return next((extra for extra in typing.get_args(annotation)[1:] if isinstance(extra, int)), 2)


def split(annotation: Any) -> tuple[Any, Range | None]:
    """The type and the range of an annotation."""
    if typing.get_origin(annotation) is Annotated:
        base, *extras = typing.get_args(annotation)
        return base, next((extra for extra in extras if isinstance(extra, Range)), None)
    return annotation, None


def describe(annotation: Any) -> str:
    """The allowed values of a parameter in words."""
    base, limits = split(annotation)
    origin = typing.get_origin(base)
    where = f" {limits}" if limits and str(limits) != "a finite number" else ""
    if origin in (typing.Union, types.UnionType):
        (rest,), words = options(base)
        inner = Annotated[rest, limits] if limits else rest
        others = [*map(repr, words), *(["None"] if type(None) in typing.get_args(base) else [])]
        return ", or ".join([describe(inner), *others])
    if origin is typing.Literal:
        return "one of " + ", ".join(repr(option) for option in typing.get_args(base))
    if origin is tuple:
        element, *rest = typing.get_args(base)
        kind, inner_limits = split(element)
        many = "numbers" if kind in (int, float) else "values"
        where = f" {inner_limits}" if inner_limits else where
        count = "one or more" if rest and rest[0] is Ellipsis else str(1 + len(rest))
        return f"{count} {many}{where}"
    if base is np.ndarray:
        shape = "one or more numbers" if array_dimensions(annotation) == 1 else "a table of numbers"
        return f"{shape}{', each' if where else ''}{where}"
    if base is bool:
        return "true or false"
    if base is int:
        return f"a whole number{where}"
    if base is float:
        return f"a number{where}" if where else "a finite number"
    return f"a value of type {getattr(base, '__name__', base)}"


def meaning(annotation: Any) -> str:
    """The meaning of a parameter; its declaration may be inside `| None`."""
    base, limits = split(annotation)
    if limits is not None and limits.meaning:
        return limits.meaning
    return next(filter(None, (meaning(option) for option in typing.get_args(base))), "")


def refusal(label: str, value: Any, annotation: Any) -> ParameterError:
    return ParameterError(f"{label} = {brief(value)} is not allowed; give {describe(annotation)}")


def brief(value: Any) -> str:
    """A value for a message, at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def plain(value: Any) -> Any:
    """A parameter as a JSON-able value."""
    if isinstance(value, Declared):
        return {"name": value.name, **value.parameters}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value
