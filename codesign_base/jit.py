"""The decorator of compiled kernels, with a cache that notices every edit.

numba keys its on-disk cache by the source file of the decorated function alone, so an edited
helper in another module would leave the caller stale. Here the cache directory is named after
a hash of *all* kernel sources: every module of the project called ``*kernels.py``.
"""

import atexit
import functools
import gc
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

_F = TypeVar("_F", bound=Callable[..., Any])

PACKAGES = ("codesign_base", "routing", "parallelism", "topoopt")


def installation_root() -> Path:
    """Return the directory that holds this installation's packages."""
    return Path(__file__).resolve().parent.parent


def kernel_sources(root: Path | None = None) -> list[Path]:
    """Return every kernel module of the project, in a fixed order.

    Parameters
    ----------
    root : Path, optional
        The directory that holds the project's packages; by default this installation's.

    Returns
    -------
    list of Path
        All ``*kernels.py`` below the project's packages, sorted.
    """
    base = installation_root() if root is None else root
    return [path for package in PACKAGES for path in sorted((base / package).rglob("*kernels.py"))]


def sources_hash(paths: list[Path], root: Path | None = None) -> str:
    """Return a short hash of the places and contents of the given files.

    Parameters
    ----------
    paths : list of Path
        The files, in an order that the caller keeps fixed.
    root : Path, optional
        Files below it count by their relative path, so that the hash does not depend on where
        the project lies; other files count by name. By default this installation's root.

    Returns
    -------
    str
        16 hexadecimal digits.
    """
    base = installation_root() if root is None else root
    digest = hashlib.sha256()
    for path in paths:
        label = path.relative_to(base).as_posix() if path.is_relative_to(base) else path.name
        content = path.read_bytes()
        digest.update(f"{label}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def cache_directory() -> Path:
    """Return the directory of this version's compiled kernels; create it where possible.

    ``NUMBA_CACHE_DIR`` is honoured as the parent; without it, ``topoopt/kernels`` in the user's
    cache directory. If that cannot be written, a temporary directory is used until the process
    ends, which costs a compilation per process.
    """
    import tempfile

    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    name = f"{version}-{sources_hash(kernel_sources())}"
    try:
        directory = _parent_directory() / name
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return directory
    except (OSError, RuntimeError):  # RuntimeError: the user has no home directory
        return _temporary_directory()


def _parent_directory() -> Path:
    configured = os.environ.get("NUMBA_CACHE_DIR")
    if configured:
        return Path(configured)
    user = os.environ.get("XDG_CACHE_HOME")
    return (Path(user) if user else Path.home() / ".cache") / "topoopt" / "kernels"


@functools.cache
def _temporary_directory() -> Path:
    import shutil
    import tempfile

    directory = Path(tempfile.mkdtemp(prefix="topoopt-kernels-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


@functools.cache
def _kernel_directory() -> Path:
    # Fixed at the first kernel: hashing every source once a kernel would be waste.
    return cache_directory()


def compiled_cache_is_warm(kernels: str = "*/*") -> bool:
    """Say whether kernels of this version were compiled before (so a first run can say so).

    Parameters
    ----------
    kernels : str
        Pattern of package and module, such as ``clos_*/*`` or ``fabric_*/packet_kernels*``.
    """
    return any(cache_directory().glob(f"{kernels}.nbi"))


def kernels_are_shared() -> bool:
    """Say whether kernels are compiled at all, and kept where other processes find them."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return False
    directory, fell_back = cache_directory(), _temporary_directory.cache_info().currsize > 0
    return not (fell_back and directory == _temporary_directory())


_decorating = threading.Lock()


def kernel(function: _F) -> _F:
    """Compile a function with numba on first call, cached on disk, releasing the GIL.

    Use it only in modules called ``*kernels.py``; self-recursion is not allowed there (numba
    crashes on cached recursive kernels). Divisions by zero do not raise, as in NumPy: looking for
    them takes a tenth of the time to compile. ``NUMBA_DISABLE_JIT=1`` leaves plain Python.
    """
    return _compiled(function, no_cfunc_wrapper=True)


def inner_kernel(function: _F) -> _F:
    """Compile a function that other kernels call, and that makes no arrays.

    Like `kernel`, but it is inlined wherever it is called, and does not count references to the
    arrays that it is given. Otherwise a call of a few dozen instructions counts each of
    them up and down, which takes more time than the work itself. It may call inner kernels only:
    numba would compile other kernels like it. So kernels make arrays first, and hand them on in
    few `NamedTuple` instances, which hardly cost anything here. Python cannot call it: the code
    that takes its arguments apart is left out, to compile less.
    """
    return _compiled(
        function, _nrt=False, forceinline=True, no_cfunc_wrapper=True, no_cpython_wrapper=True
    )


def compile_for(function: Callable[..., Any], *values: object) -> None:
    """Compile a kernel, an inner one too, for arguments like these, without calling it."""
    if hasattr(function, "py_func"):  # otherwise it is plain Python
        import numba

        cast(Any, function).compile(tuple(map(numba.typeof, values)))


def _compiled(function: _F, **options: bool) -> _F:
    import numba

    config: Any = numba.config
    njit: Any = numba.njit
    if config.DISABLE_JIT:
        return function
    # numba reads CACHE_DIR while it decorates. It is put back, so that another library's
    # cached functions stay where they were; and set each time, because numba reloads its
    # configuration whenever a NUMBA_ variable of the environment changed.
    with _decorating:
        before = config.CACHE_DIR
        config.CACHE_DIR = str(_kernel_directory())
        try:
            compiled = njit(cache=True, nogil=True, error_model="numpy", **options)(function)
        finally:
            config.CACHE_DIR = before
    _type_by_kind(compiled)
    _load_lightly(compiled)
    _compile_in_turn(compiled)
    return cast(_F, compiled)


def _load_lightly(compiled: Any) -> None:
    """Load a compiled function without what numba knows of Python and NumPy in order to compile.

    Numba gathers that first, in a third of a second. What is loaded needs no more than the
    functions that count references; what is not found is compiled, which gathers everything.
    """
    from numba.core.runtime.nrt import rtsys

    cache = compiled._cache

    def load(signature: Any, context: Any) -> Any:
        rtsys.initialize(context)
        with cache._guard_against_spurious_io_errors():
            return cache._load_overload(signature, context)

    if hasattr(cache, "_load_overload"):  # not part of numba's public interface
        cache.load_overload = load


def _compile_in_turn(compiled: Any) -> None:
    """Have one process compile a function while others that need it wait, and then load it.

    A process that holds a function's lock waits for those of what the function calls only, and
    kernels do not call themselves, so no two wait for each other.
    """
    from numba.core.compiler_lock import global_compiler_lock

    function = compiled.py_func
    name = f"{function.__module__}.{function.__qualname__}.lock"
    compile_or_load = compiled.compile

    def in_turn(signature: Any) -> Any:
        # numba's own lock first, as within: threads of this process must not wait crosswise.
        with global_compiler_lock, _uncollected(), _held(_kernel_directory() / name):
            return compile_or_load(signature)

    compiled.compile = in_turn


@contextmanager
def _uncollected() -> Iterator[None]:
    """Do not look for garbage meanwhile: nearly all that compiling makes stays to its end.

    Looking through it again and again takes an eighth of a first run.
    """
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold a file's lock, which ends with the process at the latest; where there are locks."""
    try:
        import fcntl

        file = path.open("ab")
    except (ImportError, OSError):
        yield
        return
    with file:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _type_by_kind(compiled: Any) -> None:
    """Have callers compile one version for all values of an argument.

    Called with a constant from another kernel, numba compiles a version for that very number or
    flag. Inner kernels are inlined, where constants take effect anyway.
    """
    from numba.core import types

    unliteral: Any = types.unliteral
    by_value = compiled.get_call_template

    def by_kind(args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return by_value(
            tuple(map(unliteral, args)), {name: unliteral(kind) for name, kind in named.items()}
        )

    compiled.get_call_template = by_kind
