"""How a kernel that only other compiled code calls is compiled: to be linked, never to be run.

numba makes machine code of every function that it compiles, optimises each by itself before it
optimises what calls it, and hands over each element of a state as an argument of its own, hundreds
of them a call. A kernel is inlined into the loop that plays it, so that all of this is work for
nothing: a quarter of the time that a loop takes to compile. Here states are handed over by address,
and a kernel is left as it is; the loop's own optimisation does the rest, with the same result.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from numba import _dynfunc  # type: ignore[attr-defined]
from numba.core import cgutils, compiler, imputils, lowering, typed_passes, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_machinery import register_pass
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default


class Borrowed(types.Type):
    """The type of an argument that is handed over by its address."""

    def __init__(self, value: types.Type) -> None:
        super().__init__(name=f"Borrowed({value})")
        self.value = value


@register_default(Borrowed)
class BorrowedModel(models.DataModel):
    """As an argument an address, elsewhere the value."""

    def __init__(self, manager: Any, kind: Borrowed) -> None:
        super().__init__(manager, kind)
        self.value = manager.lookup(kind.value)

    def get_value_type(self) -> Any:
        return self.value.get_value_type()

    def get_argument_type(self) -> Any:
        return self.get_value_type().as_pointer()

    def as_argument(self, builder: Any, value: Any) -> Any:
        return cgutils.alloca_once_value(builder, value)

    def from_argument(self, builder: Any, value: Any) -> Any:
        return builder.load(value)


class InnerLibrary(JITCodeLibrary):
    """Code that is linked into other code and has no address, unless it must be found when run."""

    environment = ""  # the name of the constants that numba hands to a function as Python objects
    needs_address = False

    def add_ir_module(self, module: Any) -> None:
        text = cgutils.normalize_ir_text(str(module))
        # Named once where it is declared, and again where it is used: to print, to raise.
        self.needs_address |= text.count(self.environment) > 1
        parsed = llvm.parse_assembly(text)
        parsed.name, parsed.data_layout = module.name, self._codegen._data_layout
        self._final_module.link_in(parsed)

    def finalize(self) -> None:
        if self.needs_address:
            super().finalize()
            return
        inits: set[Any] = getattr(self, "_reload_init", set())  # not in the oldest numba
        for library in dict.fromkeys(self._linking_libraries):
            inits.update(getattr(library, "_reload_init", ()))
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True


class InnerLower(lowering.Lower):
    """numba's lowering, but for how arguments of several parts are handed over."""

    def __init__(self, context: Any, library: Any, function: Any, *others: Any, **more: Any):
        library.environment = function.env_name
        function.argtypes = tuple(
            Borrowed(kind)
            if isinstance(context.data_model_manager.lookup(kind), models.StructModel)
            else kind
            for kind in function.argtypes
        )
        super().__init__(context, library, function, *others, **more)


@register_pass(mutates_CFG=True, analysis_only=False)
class InnerLowering(typed_passes.NativeLowering):
    """Lower a kernel into a library that is only linked."""

    _name = "inner_lowering"
    lowering_class = InnerLower

    def run_pass(self, state: Any) -> bool:
        context, library = (
            state.targetctx,
            InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname),
        )
        library.enable_object_caching()
        state.library = library
        super().run_pass(state)
        function, environment = state["cr"].fndesc, state["cr"].env
        if library.needs_address:
            handle = context.get_executable(library, function, environment)
        else:  # what callers look the kernel up by; there is nothing behind it to be called
            handle = _dynfunc.make_function(
                function.lookup_module(), function.qualname, "", 0, environment, (library,)
            )
        call = imputils.user_function(function, [library])
        context._defns[handle].append(call, tuple(state.args))
        state["cr"] = state["cr"]._replace(cfunc=handle)
        return True


class InnerCompiler(compiler.Compiler):
    """numba's compiler, but for what it makes of a kernel in the end."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.state.flags.no_compile = True

    def define_pipelines(self) -> list[Any]:
        managers = super().define_pipelines()
        for manager in managers:
            manager.passes = [
                (InnerLowering if step is typed_passes.NativeLowering else step, purpose)
                for step, purpose in manager.passes
            ]
            manager._finalized = False
            manager.finalize()
        return managers
