"""Registries of classes by name: how `bl.policy("ucb1", arms=9)` finds its class.

An author registers a class with `register`, or an installed distribution does so through an entry
point in the package's group::

    [project.entry-points."balaclava.policies"]
    my-policy = "my_package.my_policy:MyPolicy"

The entry point names a class, or a module that registers classes when imported.
"""

import importlib
import pkgutil
import threading
import types
import warnings
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from balaclava._core.declared import Declared
from balaclava._core.docstrings import complete_docstring
from balaclava.errors import ParameterError, PlugInWarning, UnknownNameError, nearest

Registered = TypeVar("Registered")  # so that a decorated class keeps its own type
Kind = TypeVar("Kind", bound=Declared)


class Registry(Generic[Kind]):
    """Classes of one kind by name; `package` and plug-ins are imported on first use."""

    def __init__(self, base: type[Kind], package: str) -> None:
        self._base = base
        self._package = package
        self._classes: dict[str, type[Kind]] = {}
        self._discovered = False
        self._lock = threading.RLock()

    def register(self, cls: type[Registered]) -> type[Registered]:
        """Register a class under its `name`.

        Raises:
            ParameterError: if `cls` is not of this kind, has no name, or the name is taken.
        """
        self._add(cls)
        return cls

    def _add(self, cls: Any) -> None:
        if not (isinstance(cls, type) and issubclass(cls, self._base)):
            raise ParameterError(
                f"{cls!r} cannot be registered; it must be a subclass of bl.{self._base.__name__}"
            )
        name = cls.__dict__.get("name")
        if not isinstance(name, str) or not name:
            raise ParameterError(f"{cls.__name__} has no name; set `name = '...'` in its body")
        known = self._classes.get(name, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ParameterError(
                f"the {self._base.kind} name {name!r} is taken by {known!r}; choose another"
            )
        if "kernels" in self._base.__annotations__ and not hasattr(cls, "kernels"):
            raise ParameterError(
                f"{cls.__name__} has no kernels; set `kernels = Kernels(begin, choose, learn)` in "
                "its body"
            )
        complete_docstring(cls)
        self._classes[name] = cls

    def get(self, name: str) -> type[Kind]:
        """Look up a class; an unknown name raises `UnknownNameError` with the nearest one."""
        classes = self.classes()
        if not isinstance(name, str) or name not in classes:
            raise UnknownNameError(
                f"no {self._base.kind} is called {name!r}; {nearest(str(name), classes)} (if it is "
                "your own, import its module first: on the command line, balaclava --import MODULE)"
            )
        return classes[name]

    def create(self, name: str, parameters: dict[str, Any]) -> Kind:
        return self.get(name).create(parameters)

    def from_mapping(self, label: str, description: Mapping[str, Any]) -> Kind:
        """Build an object from a mapping with `name` and the parameters."""
        parameters = dict(description)
        name = parameters.pop("name", None)
        if not isinstance(name, str):
            raise ParameterError(
                f"{label} has no `name`; give the name of a {self._base.kind} beside its parameters"
            )
        return self.create(name, parameters)

    def classes(self) -> dict[str, type[Kind]]:
        """All classes by name: built-in ones first, then plug-ins, in order of import."""
        with self._lock:  # reentrant: imported modules may call this
            if not self._discovered:
                self._discovered = True
                package = importlib.import_module(self._package)
                for module in pkgutil.walk_packages(package.__path__, self._package + "."):
                    importlib.import_module(module.name)
                self._load_plug_ins()
        return self._classes

    def _load_plug_ins(self) -> None:
        """Register the plug-ins of installed distributions; a broken one causes a warning."""
        from importlib.metadata import entry_points

        for entry in entry_points(group=self._package):
            try:
                thing = entry.load()
                if not isinstance(thing, types.ModuleType):
                    self.register(thing)
            except Exception as error:
                origin = entry.dist.name if entry.dist else "an unknown distribution"
                warnings.warn(
                    f"the plug-in {entry.name!r} of {origin} ({entry.group}: {entry.value}) failed "
                    f"to load: {type(error).__name__}: {error}; update or uninstall {origin}",
                    PlugInWarning,
                    stacklevel=3,
                )
