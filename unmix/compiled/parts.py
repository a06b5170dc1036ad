"""Compile functions whole for Python, and as parts of others: typed and lowered once, optimised in their callers.

Numba makes a library of each function that is called: it links all that this one calls into it, optimises everything
anew, makes machine code of it, and wraps that for callers in Python and in C, of whom there are none. A first run took
27 s of CPU time so, and takes 13.
"""

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

from numba.core import compiler, compiler_machinery, event, typed_passes, types, typing, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.registry import CPUDispatcher

# Numba's settings (``NUMBA_…``) that change machine code, such as checks of bounds for whoever looks for a fault.
SETTINGS = (
    "BOUNDSCHECK",
    "CUDA_DEBUGINFO_DEFAULT",
    "DEBUGINFO_DEFAULT",
    "DEBUG_NRT",
    "DISABLE_INTEL_SVML",
    "ENABLE_AVX",
    "ENABLE_PROFILING",
    "EXTEND_VARIABLE_LIFETIMES",
    "JIT_COVERAGE",
    "LLVM_REFPRUNE_FLAGS",
    "LLVM_REFPRUNE_PASS",
    "LOOP_VECTORIZE",
    "NRT_STATS",
    "OPT",
    "SLP_VECTORIZE",
)


@contextlib.contextmanager
def collecting_nothing() -> Iterator[None]:
    """Disable garbage collection meanwhile; only one thread at a time may use this, as under Numba's lock."""
    # Numba makes millions of objects that live on; looking for cycles among them made a first run 6 % longer.
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


# Numba's passes before it lowers a function, without those for closures, comprehensions, `with`, loops over tuples and
# expressions of whole arrays, of which compiled functions here have none.
PASSES = (
    untyped_passes.TranslateByteCode,
    untyped_passes.FixupArgs,
    untyped_passes.IRProcessing,
    untyped_passes.RewriteSemanticConstants,
    untyped_passes.DeadBranchPrune,
    untyped_passes.GenericRewrites,
    untyped_passes.ReconstructSSA,
    typed_passes.NopythonTypeInference,
    typed_passes.PreLowerStripPhis,
    typed_passes.InlineOverloads,
)


class Pipeline(compiler.CompilerBase):
    """Numba's compiler without passes for what none of our functions has: in a first run they took 3 s of 35."""

    def define_pipelines(self) -> list[Any]:
        """Return the passes."""
        passes = compiler_machinery.PassManager("unmix")
        for one in PASSES:
            passes.add_pass(one, one._name)
        passes.passes.extend(compiler.DefaultPassBuilder.define_nopython_lowering_pipeline(self.state).passes)
        passes.finalize()
        passes._ENFORCING = False
        return [passes]


DEFAULTS = compiler.Flags().values()


class Flags(compiler.Flags):
    """Numba's flags, which it compares at each call that it types: option by option that took 4 % of a first run."""

    __slots__ = ()

    def values(self) -> dict[str, Any]:
        """Return all options by name."""
        return DEFAULTS | self._values


class CodePart(JITCodeLibrary):
    """The code of a function as it was lowered."""

    def _optimize_functions(self, ll_module: Any) -> None:
        """Leave functions as they are: `Whole` optimises them."""
        ll_module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        """Take no more code; neither optimise it nor make machine code of it."""
        self._finalized = True


# How the names begin, as Numba mangles them, of functions that Python calls.
UNBOXING = "_ZN7cpython"


class Whole(JITCodeLibrary):
    """The code of a function and of all its parts, which is optimised together."""

    _optimize_functions = CodePart._optimize_functions

    def add_ir_module(self, ir_module: Any) -> None:
        """Add code; leave what unboxes arguments for Python as it is: to optimise it took 7 % of a first run."""
        for function in ir_module.functions if hasattr(ir_module, "functions") else ():
            if function.name.startswith(UNBOXING):
                function.attributes.add("noinline")
                function.attributes.add("optnone")
        super().add_ir_module(ir_module)

    def _optimize_final_module(self) -> None:
        """Optimise once: Numba's first, cheap pass is for counts of references, which compiled functions here lack."""
        found = self._codegen._module_pass_manager()
        passes, *builder = found if isinstance(found, tuple) else (found,)
        passes.run(self._final_module, *builder)

    def add_linking_library(self, library: Any) -> None:
        """Add a library, and the libraries that a part calls."""
        if library not in self._linking_libraries:
            super().add_linking_library(library)
            for below in library._linking_libraries if isinstance(library, CodePart) else ():
                self.add_linking_library(below)


class Function(CPUDispatcher):
    """A compiled function, which is a `CodePart` for compiled callers.

    Numba gives a number in the source a type of its own. What is inlined is compiled once for all numbers, since its
    caller knows them anyway; elsewhere the search by supports took a tenth longer so.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.parts = dict[tuple[Any, ...], Any]()
        self._compiler._compile_core = self._compile_whole

    def _compile(self, args: tuple[Any, ...], kind: type[JITCodeLibrary], **options: bool) -> Any:
        """Return Numba's result for types of arguments."""
        flags = Flags()
        self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
        for name, value in options.items():
            setattr(flags, name, value)
        library = kind(self.targetctx.codegen(), self.py_func.__qualname__)
        library.enable_object_caching()
        return compiler.compile_extra(
            self.typingctx, self.targetctx, self.py_func, args, None, flags, {}, library, Pipeline
        )

    def _compile_whole(self, args: tuple[Any, ...], return_type: Any) -> Any:
        """Compile for callers in Python, or by an address."""
        with collecting_nothing():
            result = self._compile(args, Whole, no_cfunc_wrapper=True)
        for environment in result._find_referenced_environments():  # those of its parts; Numba sets the function's own
            result.library.codegen.set_env(environment.env_name, environment)
        return result

    def _compile_part(self, args: tuple[Any, ...]) -> None:
        """Compile for callers that are compiled, and tell Numba's context where the code is."""
        details = {"dispatcher": self, "args": args, "return_type": None}
        with event.trigger_event("numba:compile", data=details):
            result = self._compile(args, CodePart, no_cpython_wrapper=True, no_cfunc_wrapper=True, no_compile=True)
        result.library.finalize()
        self.parts[args] = result._replace(entry_point=(self, args))
        self.targetctx.insert_user_function((self, args), result.fndesc, [result.library])

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return the template by which Numba types a compiled call."""
        signature, folded = self._compiler.fold_argument_types(args, kws)
        kinds = tuple(map(types.unliteral, folded)) if self.targetoptions.get("forceinline") else tuple(folded)
        if kinds not in self.parts:
            self._compile_part(kinds)
        name, signatures = self.py_func.__name__, [part.signature for part in self.parts.values()]
        return typing.make_concrete_template(f"CallTemplate({name})", name, signatures), signature, kinds, {}

    def get_overload(self, sig: Any) -> Any:
        """Return the key under which Numba's context knows the part with a signature."""
        return self.parts[tuple(getattr(sig, "args", sig))].entry_point


def new_function(function: Callable[..., Any], **options: Any) -> Function:
    """Return the compiled form of a function, with Numba's options for ``njit``."""
    return Function(function, targetoptions={"nopython": True, "boundscheck": None, **options})


def fields_in(sig: Any) -> set[tuple[str, ...]]:
    """Return name and fields of every NamedTuple type in a signature, at any depth."""
    # Machine code holds the numbers of fields, but Numba's names of these types hold only the class.
    fields = {(sig.instance_class.__qualname__, *sig.fields)} if isinstance(sig, types.BaseNamedTuple) else set()
    inner = sig if isinstance(sig, tuple) else getattr(sig, "types", ())
    return fields.union(*map(fields_in, inner))
