"""Compile with numba, and leave out what it would do again and again.

Two things take much of the time that numba needs for our kernels, and change nothing of the code
that comes out. It optimises each inner kernel and makes machine code of it, although nothing but
the kernels it is inlined into ever runs it, where it is optimised anew. And it tries the dozens
of implementations of an operator on the types of its operands at each place where they meet.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import binding
from numba.core import codegen, compiler, targetconfig
from numba.core.types import functions

# Without types of their own.
llvm: Any = binding
JITCodeLibrary: Any = codegen.JITCodeLibrary
Compiler: Any = compiler.Compiler
BaseFunction: Any = functions.BaseFunction
ConfigStack: Any = targetconfig.ConfigStack


class InlinedCompiler(Compiler):  # type: ignore[misc]
    """The compiler of functions that are inlined wherever they are called, for ``njit``."""

    def define_pipelines(self) -> Any:
        """Have a library of its own kind made of the function, and compile it as usual."""
        state = self.state
        state.library = _Inlined(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().define_pipelines()


class _Inlined(JITCodeLibrary):  # type: ignore[misc]
    """The code of a function for its callers, which optimise it and make machine code of it."""

    _final_module: Any

    def _optimize_final_module(self) -> None:
        # What the library's callers link is kept here. Machine code is made of what is left: the
        # places of environments, which numba fills in.
        code = self._final_module
        self._finalize_dynamic_globals()
        for function in code.functions:
            if not function.is_declaration and function.linkage == llvm.Linkage.external:
                function.linkage = "linkonce_odr"
        self._shared_module = code
        environments = [
            each.name for each in code.global_variables if each.name.startswith("_ZN08NumbaEnv")
        ]
        places = (f'@"{name}" = common global i8* null' for name in environments)
        empty = self._codegen._create_empty_module(self.name)
        self._final_module = llvm.parse_assembly("\n".join((str(empty), *places)))
        self._final_module.name = code.name


class _Remembered:
    """Types of what builtin functions return, by the flags of the compilation that asked."""

    def __init__(self) -> None:
        self.every: dict[str, dict[Any, Any]] = {}
        self.flags: Any = None
        self.found: dict[Any, Any] = {}

    def of(self, flags: Any) -> dict[Any, Any]:
        if flags is not self.flags:
            self.flags = flags
            self.found = self.every.setdefault(flags.summary(), {})
        return self.found


_remembered = _Remembered()
_resolve = BaseFunction.get_call_type


def _resolve_once(self: Any, context: Any, args: Any, kws: Any) -> Any:
    flags = ConfigStack.top_or_none()
    if kws or flags is None or not all(each.is_precise() for each in args):
        return _resolve(self, context, args, kws)
    found = _remembered.of(flags)
    key = (self, context, tuple(args))
    signature = found.get(key)
    if signature is None:
        signature = found[key] = _resolve(self, context, args, kws)
    return signature


@contextmanager
def briefly() -> Iterator[None]:
    """Resolve each function on each kind of operands once, and look for no garbage meanwhile.

    Nearly all that compiling makes stays to its end; looking through it again and again takes an
    eighth of a first run. numba's own lock must be held.
    """
    collected, resolve = gc.isenabled(), BaseFunction.get_call_type
    gc.disable()
    BaseFunction.get_call_type = _resolve_once
    try:
        yield
    finally:
        BaseFunction.get_call_type = resolve
        if collected:
            gc.enable()
