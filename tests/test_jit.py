"""The kernel cache: it notices every edit, and works where nothing can be written."""

import fcntl
import gc
import importlib
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from codesign_base import jit

PROGRAM = """
import sys
from codesign_base import jit

print("warm" if jit.compiled_cache_is_warm() else "cold")
sys.path.insert(0, sys.argv[1])
import numba
before = numba.config.CACHE_DIR
from sample_kernels import triple
assert numba.config.CACHE_DIR == before
print(type(triple).__name__)
print(triple(14))
hits = getattr(triple, "stats", None)
print(sum(hits.cache_hits.values()) if hits else "none")
"""

LOADED_THEN_COMPILED = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from codesign_base.jit import kernel
from filled_kernels import filled

@kernel
def twice(n):
    return 2 * filled(n)

if len(sys.argv) > 2:
    print(filled(3), sum(filled.stats.cache_hits.values()), "numba.typed.typeddict" in sys.modules)
    print(twice(4), "numba.typed.typeddict" in sys.modules)
else:
    print(filled(3), sum(filled.stats.cache_hits.values()))
"""

FILLED = """
import numpy as np
from codesign_base.jit import kernel

@kernel
def filled(n):
    return np.full(n, 1.5)
"""

KERNEL = """
from codesign_base.jit import kernel

@kernel
def triple(x):
    return 3 * x
"""

CALLED_WITH_CONSTANTS = """
from codesign_base.jit import inner_kernel, kernel

@inner_kernel
def scaled(x, factor, really):
    return factor * x if really else x

@kernel
def both(x):
    return scaled(x, 2, True) + scaled(x, 3, False)
"""


@pytest.fixture
def tree(tmp_path):
    for name, text in [
        ("routing/b_kernels.py", "b = 1"),
        ("routing/a_kernels.py", "a = 1"),
        ("routing/other.py", "c = 1"),
        ("topoopt/fabric/kernels.py", "d = 1"),
        ("parallelism/kernels.py", "e = 1"),
        ("elsewhere/kernels.py", "f = 1"),
    ]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_sources_in_a_fixed_order(tree):
    names = [path.relative_to(tree).as_posix() for path in jit.kernel_sources(tree)]
    assert names == [
        "routing/a_kernels.py",
        "routing/b_kernels.py",
        "parallelism/kernels.py",
        "topoopt/fabric/kernels.py",
    ]


def test_the_installation_is_found():
    assert Path(jit.__file__).parents[1] == jit.installation_root()
    assert jit.kernel_sources() == jit.kernel_sources(jit.installation_root())


def test_hash_follows_content_and_place(tree):
    def current():
        return jit.sources_hash(jit.kernel_sources(tree), tree)

    first = current()
    assert current() == first
    (tree / "routing/other.py").write_text("c = 2")
    assert current() == first
    (tree / "routing/a_kernels.py").write_text("a = 2")
    second = current()
    assert second != first
    (tree / "parallelism/kernels.py").rename(tree / "parallelism/c_kernels.py")
    assert current() not in (first, second)


def test_hash_tells_swapped_files_apart(tree):
    before = jit.sources_hash(jit.kernel_sources(tree), tree)
    (tree / "topoopt/fabric/kernels.py").write_text("e = 1")
    (tree / "parallelism/kernels.py").write_text("d = 1")
    assert jit.sources_hash(jit.kernel_sources(tree), tree) != before


def test_hash_does_not_depend_on_where_the_project_lies(tree, tmp_path):
    before = jit.sources_hash(jit.kernel_sources(tree), tree)
    moved = tmp_path.parent / f"{tmp_path.name}-moved"
    tree.rename(moved)
    assert jit.sources_hash(jit.kernel_sources(moved), moved) == before


def test_numba_cache_dir_is_the_parent(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "a" / "b"))
    directory = jit.cache_directory()
    assert directory.parent == tmp_path / "a" / "b"
    assert directory.is_dir()
    assert jit.sources_hash(jit.kernel_sources()) in directory.name


def test_user_cache_by_default(tmp_path, monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jit.cache_directory().parent == tmp_path / "topoopt" / "kernels"


def test_unwritable_cache_falls_back_to_one_temporary_directory(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")  # a file in the way stops the superuser too
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "cache"))
    directory = jit.cache_directory()
    assert directory.is_dir()
    assert tmp_path not in directory.parents
    assert jit.cache_directory() == directory


def test_no_home_directory_falls_back(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert jit.cache_directory().is_dir()


def run(tmp_path, **environment):
    (tmp_path / "sample_kernels.py").write_text(KERNEL)
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_second_process_reuses_the_cache(tmp_path):
    cache = str(tmp_path / "cache")
    assert run(tmp_path, NUMBA_CACHE_DIR=cache) == ["cold", "CPUDispatcher", "42", "0"]
    assert run(tmp_path, NUMBA_CACHE_DIR=cache) == ["warm", "CPUDispatcher", "42", "1"]


def test_what_is_loaded_waits_for_nothing_that_only_compiling_needs(tmp_path):
    (tmp_path / "filled_kernels.py").write_text(FILLED)
    (tmp_path / "program.py").write_text(LOADED_THEN_COMPILED)
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path)]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    said = [
        subprocess.check_output([*command, *more], env=environment, text=True).splitlines()
        for more in ([], ["compile another"])
    ]
    assert said[0] == ["[1.5 1.5 1.5] 0"]
    assert said[1] == ["[1.5 1.5 1.5] 1 False", "[3. 3. 3. 3.] True"]


def test_compiling_waits_for_other_processes_that_compile_the_same(tmp_path, monkeypatch):
    (tmp_path / "waiting_kernels.py").write_text(KERNEL)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("waiting_kernels")
    held, numbers = jit._held, []

    @contextmanager
    def noted(path):
        with held(path), path.open() as other:
            with pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            numbers.append(path.name)
            yield

    monkeypatch.setattr(jit, "_held", noted)
    assert module.triple(14) == 42
    assert numbers == ["waiting_kernels.triple.lock"]
    with (jit._kernel_directory() / numbers[0]).open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("collected", [True, False])
def test_compiling_looks_for_no_garbage_and_leaves_the_collector_as_it_was(
    tmp_path, monkeypatch, collected
):
    name = f"collected_{collected}_kernels".lower()
    (tmp_path / f"{name}.py").write_text(KERNEL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(jit, "_held", noted := Noted(jit._held))
    module = importlib.import_module(name)
    before = gc.isenabled()
    (gc.enable if collected else gc.disable)()
    try:
        gc.callbacks.append(noted.collecting)
        assert module.triple(14) == 42
        assert gc.isenabled() is collected
    finally:
        gc.callbacks.remove(noted.collecting)
        (gc.enable if before else gc.disable)()
    assert noted.taken == 1
    assert noted.collections == 0


class Noted:
    """Counts how often the lock of a kernel was taken, and collections meanwhile."""

    def __init__(self, held):
        self.held, self.taken, self.collections, self.within = held, 0, 0, False

    @contextmanager
    def __call__(self, path):
        with self.held(path):
            self.taken, self.within = self.taken + 1, True
            yield
            self.within = False

    def collecting(self, phase, info):
        self.collections += self.within and phase == "start"


def test_kernels_without_a_place_are_not_shared(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert jit.kernels_are_shared()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert not jit.kernels_are_shared()


@pytest.mark.slow
def test_unwritable_cache_still_computes(tmp_path):
    (tmp_path / "file").write_text("")
    cache = str(tmp_path / "file" / "cache")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    output = run(tmp_path, NUMBA_CACHE_DIR=cache, TMPDIR=str(temporary))
    assert output == ["cold", "CPUDispatcher", "42", "0"]
    assert list(temporary.iterdir()) == [], "the temporary cache outlived its process"


def test_disabled_jit_leaves_plain_python(tmp_path):
    cache = tmp_path / "cache"
    output = run(tmp_path, NUMBA_CACHE_DIR=str(cache), NUMBA_DISABLE_JIT="1")
    assert output == ["cold", "function", "42", "none"]


def test_constants_make_no_versions_of_their_own(tmp_path, monkeypatch):
    (tmp_path / "constant_kernels.py").write_text(CALLED_WITH_CONSTANTS)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("constant_kernels")
    assert module.both(5) == 15
    assert len(module.scaled.signatures) == 1


def test_kernels_compile_for_arguments_without_being_called(tmp_path, monkeypatch):
    (tmp_path / "uncalled_kernels.py").write_text(CALLED_WITH_CONSTANTS)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("uncalled_kernels")
    jit.compile_for(module.scaled, 1.5, 2, True)
    compiled = list(module.scaled.signatures)
    assert len(compiled) == 1
    assert module.both(1.5) == 2 * 1.5 + 1.5
    assert module.scaled.signatures == compiled
    calls = []
    jit.compile_for(calls.append, 1)  # without numba kernels are plain functions
    assert calls == []
