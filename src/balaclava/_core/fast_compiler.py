"""A faster way to compile kernels, built on numba's internals.

numba generates and optimises machine code for every function before its caller. It passes every
element of a state as a separate argument, hundreds per call. Kernels are always inlined into the
loop that plays them, so most of this work is wasted. Here a kernel is only linked, and states are
passed by address. Optimising the loop then gives the same result.

This is the only module that uses numba's internals. `kernels.uses_fast_compiler` says when it is
used; without it numba's public interface compiles the same kernels, more slowly.
"""

import gc
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from llvmlite.ir.instructions import AllocaInstr, CastInstr, GEPInstr, LoadInstr, StoreInstr
from numba import _dynfunc  # type: ignore[attr-defined]
from numba.core import (
    caching,
    cgutils,
    compiler,
    config,
    imputils,
    ir,
    lowering,
    typed_passes,
    types,
)
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_machinery import register_pass
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default


class Borrowed(types.Type):
    """The type of an argument that is passed by address."""

    def __init__(self, value: types.Type) -> None:
        super().__init__(name=f"Borrowed({value})")
        self.value = value


@register_default(Borrowed)
class BorrowedModel(models.DataModel):
    """Passes the address as an argument; stores the value everywhere else."""

    def __init__(self, manager: Any, kind: Borrowed) -> None:
        super().__init__(manager, kind)
        self.value = manager.lookup(kind.value)

    def get_value_type(self) -> Any:
        return self.value.get_value_type()

    def get_argument_type(self) -> Any:
        return self.get_value_type().as_pointer()

    def as_argument(self, builder: Any, value: Any) -> Any:
        address = address_of(builder, value)
        return cgutils.alloca_once_value(builder, value) if address is None else address

    def from_argument(self, builder: Any, value: Any) -> Any:
        return builder.load(value)


def address_of(builder: Any, value: Any) -> Any:
    """The address from which a value was just loaded, if it still holds it; else None."""
    if not isinstance(value, LoadInstr):
        return None
    address = value.operands[0]
    for instruction in reversed(builder.block.instructions):
        if instruction is value:
            return address
        if isinstance(instruction, StoreInstr):
            target = instruction.operands[1]
            if target is address or not isinstance(target, AllocaInstr):
                return None
        elif not isinstance(instruction, LoadInstr | GEPInstr | CastInstr | AllocaInstr):
            return None
    return None


class InnerLibrary(JITCodeLibrary):
    """Code that is only linked into other code, unless it needs an address at run time."""

    environment = ""  # name of the Python objects that numba gives a function
    needs_address = False

    def add_ir_module(self, module: Any) -> None:
        text = cgutils.normalize_ir_text(str(module))
        # The name occurs once where it is declared, and again if the code prints or raises.
        self.needs_address |= text.count(self.environment) > 1
        parsed = llvm.parse_assembly(text)
        parsed.name, parsed.data_layout = module.name, self._codegen._data_layout
        self.tidy(parsed)
        self._final_module.link_in(parsed)

    def tidy(self, module: Any) -> None:
        """Simplify a kernel once, rather than after each inlining."""
        for function in module.functions:
            steps = llvm.create_new_function_pass_manager()
            if function.is_declaration or not hasattr(steps, "add_sroa_pass"):
                continue  # the oldest llvmlite has no such pass
            steps.add_sroa_pass()
            steps.add_simplify_cfg_pass()
            steps.add_instruction_combine_pass()
            steps.run(function, self._codegen._pass_builder())

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
    """numba's lowering, with structured arguments passed and read by address.

    numba copies each variable, and loads a whole state to read one of its arrays. Here a part of an
    argument is loaded from the caller's memory.
    """

    def __init__(self, context: Any, library: Any, function: Any, *others: Any, **more: Any):
        library.environment = function.env_name
        function.argtypes = tuple(
            Borrowed(kind)
            if isinstance(context.data_model_manager.lookup(kind), models.StructModel)
            else kind
            for kind in function.argtypes
        )
        self.parts: dict[str, tuple[int, ...]] = {}  # by variable: the argument and the path in it
        super().__init__(context, library, function, *others, **more)

    def init(self) -> None:
        super().init()
        if self.context.enable_nrt:
            return
        for block in self.blocks.values():
            for step in block.find_insts(ir.Assign):
                part = self.part_of(step.value)
                if part and len(self.func_ir._definitions[step.target.name]) == 1:
                    self.parts[step.target.name] = part

    def part_of(self, value: Any) -> tuple[int, ...]:
        """The argument and the path of a value that is part of one; else ()."""
        if isinstance(value, ir.Arg):
            return (value.index,) if isinstance(self.fndesc.argtypes[value.index], Borrowed) else ()
        if isinstance(value, ir.Var):
            return self.parts.get(value.name, ())
        if isinstance(value, ir.Expr) and value.op == "getattr":
            part, kind = self.parts.get(value.value.name, ()), self.typeof(value.value.name)
            named = isinstance(kind, types.NamedTuple | types.NamedUniTuple)
            if part and named and value.attr in kind.fields:  # not a method
                return (*part, kind.fields.index(value.attr))
        return ()

    def lower_inst(self, inst: Any) -> None:
        if not (isinstance(inst, ir.Assign) and inst.target.name in self.parts):
            super().lower_inst(inst)

    def _alloca_var(self, name: str, fetype: Any) -> None:
        if name not in self.parts:
            super()._alloca_var(name, fetype)

    def delvar(self, name: str) -> None:
        if name not in self.parts:
            super().delvar(name)

    def loadvar(self, name: str) -> Any:
        if name not in self.parts:
            return super().loadvar(name)
        argument, *path = self.parts[name]
        address = self.fnargs[argument].operands[0]
        return self.builder.load(cgutils.gep_inbounds(self.builder, address, 0, *path))


@register_pass(mutates_CFG=True, analysis_only=False)
class InnerLowering(typed_passes.NativeLowering):
    """Lower a kernel into a library that is only linked."""

    _name = "inner_lowering"
    lowering_class = InnerLower

    def run_pass(self, state: Any) -> bool:
        context = state.targetctx
        state.library = library = InnerLibrary(context.codegen(), state.func_id.func_qualname)
        library.enable_object_caching()
        super().run_pass(state)
        function, environment = state["cr"].fndesc, state["cr"].env
        if library.needs_address:
            handle = context.get_executable(library, function, environment)
        else:  # a handle by which callers find the kernel; it cannot be called
            handle = _dynfunc.make_function(
                function.lookup_module(), function.qualname, "", 0, environment, (library,)
            )
        call = imputils.user_function(function, [library])
        context._defns[handle].append(call, tuple(state.args))
        state["cr"] = state["cr"]._replace(cfunc=handle)
        return True


class InnerCompiler(compiler.Compiler):
    """numba's compiler, with `InnerLowering` at its end."""

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


class LoopCompiler(compiler.Compiler):
    """numba's compiler for a loop and the kernels that it calls."""

    def compile_extra(self, func: Any) -> Any:
        collects = gc.isenabled()
        gc.disable()  # compiling creates many objects that live until its end
        try:
            return super().compile_extra(func)
        finally:
            if collects:
                gc.enable()


class DirectoryCache(caching.FunctionCache):
    """numba's cache on disk; the name of its directory identifies the code."""

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        # Types as text: reading an index of a user's classes would import them.
        return tuple(map(_type_name, sig)), codegen.magic_tuple()


def keep_on_disk(dispatcher: Any, directory: Path) -> None:
    """Keep a function's machine code in `directory`, and look there before compiling."""
    settings: Any = config
    before, settings.CACHE_DIR = settings.CACHE_DIR, str(directory)
    try:
        dispatcher._cache = DirectoryCache(dispatcher.py_func)
    except (RuntimeError, OSError):
        pass  # the directory is not writable: compile in every process
    finally:
        settings.CACHE_DIR = before


def _type_name(kind: Any) -> str:
    """A numba type as text, with the modules of the named tuples in it."""
    owner = getattr(kind, "instance_class", None)
    parts = "".join(_type_name(part) for part in getattr(kind, "types", ()))
    return f"{owner.__module__ if owner else ''} {kind} {parts}"
