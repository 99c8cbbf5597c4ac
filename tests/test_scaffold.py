"""What the repository promises about itself: packages, layers, lazy imports, pinned versions."""

import ast
import fnmatch
import functools
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import topoopt

ROOT = Path(__file__).resolve().parents[1]
DECORATORS = ("kernel", "inner_kernel")
PACKAGES = ("parallelism", "routing", "topoopt", "codesign_base")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
HEAVY = (
    "cvxpy", "highspy", "matplotlib", "networkx", "numba", "ortools", "pandas", "plotly",
    "rustworkx", "scipy", "sympy", "torch",
)  # fmt: skip


def modules():
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def parsed(path):
    return ast.parse(path.read_text())


@functools.cache
def imports(path):
    """All imports of a module, those inside functions too: (module, imported name or None)."""
    return tuple(_imports(path))


def _imports(path):
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from ((node.module, alias.name) for alias in node.names)


def test_every_directory_of_code_is_an_installed_package():
    patterns = PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    for directory in sorted({path.parent for path in modules()}):
        assert (directory / "__init__.py").is_file(), f"{directory} lacks __init__.py"
        name = name_of(directory / "__init__.py")
        assert any(fnmatch.fnmatchcase(name, p) for p in patterns), f"{name} is not installed"


UNINSTALLED = """
import sys, pytest
root = sys.argv[1]
sys.path = [path for path in sys.path if path != root]
sys.meta_path = [each for each in sys.meta_path if "__editable__" not in str(each)]
sys.exit(pytest.main(["--collect-only", "-p", "no:cacheprovider", root + "/" + sys.argv[2]]))
"""


def test_tests_are_found_in_a_checkout_that_is_not_installed():
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    some = "tests/topoopt/problem/test_prices.py"
    found = subprocess.run(
        [sys.executable, "-P", "-c", UNINSTALLED, str(ROOT), some],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout


def test_every_data_file_is_installed():
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["*"]
    for package in PACKAGES:
        assert (ROOT / package / "py.typed").is_file()
        for path in (ROOT / package).rglob("*"):
            hidden = any(p.startswith((".", "__pycache__")) for p in path.relative_to(ROOT).parts)
            if hidden or path.is_dir() or path.suffix == ".py":
                continue
            assert any(fnmatch.fnmatchcase(path.name, p) for p in patterns), path
            assert (path.parent / "__init__.py").is_file(), f"{path} lies outside any package"


def test_version():
    assert topoopt.__version__ == version("topoopt") == PROJECT["project"]["version"]


def test_layers():
    forbidden = {
        "codesign_base": {"parallelism", "routing", "topoopt"},
        "routing": {"parallelism", "topoopt"},
        "parallelism": {"routing", "topoopt"},
        "topoopt": set(),
    }
    for path in modules():
        package = path.relative_to(ROOT).parts[0]
        for module, _ in imports(path):
            assert module.split(".")[0] not in forbidden[package], f"{path} imports {module}"


# Operations of models and their readers from PyTorch, two queues of events, and entry points.
SAME_MEANING = {"attention", "concat", "embedding", "pool", "softmax", "main", "pop", "push"}


def test_a_public_name_means_one_thing():
    found = {}
    for path in modules():
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(name_of(path))
    assert {name for name, where in found.items() if len(where) > 1} == SAME_MEANING


def is_kernel_module(name):
    return name.endswith("kernels")


def test_compiled_code_is_in_kernel_modules_only():
    for path in modules():
        for module, name in imports(path):
            uses = module.split(".")[0] == "numba" or (module, name) == (
                "codesign_base.jit",
                "kernel",
            )
            allowed = is_kernel_module(path.stem) or name_of(path) == "codesign_base.jit"
            assert allowed or not uses, f"{path} imports {name or module}"


def test_kernel_modules_depend_on_kernel_sources_only():
    # A constant or helper from elsewhere would be compiled in, and its edits go unnoticed.
    outside = {"collections", "math", "numba", "numpy", "typing", "codesign_base"}
    for path in modules():
        if not is_kernel_module(path.stem):
            continue
        for module, name in imports(path):
            types_only = name is not None and name.endswith("Array")
            known = module.split(".")[0] in outside or is_kernel_module(module)
            assert known or types_only, f"{path} imports {name} from {module}"


# Modules of ours that may be imported inside functions, by a library that importing them loads.
# Any other import inside a function hides a cycle or waits for nothing. Only commands import
# all of their work there, so that the command line starts at once.
LOADED_LATE = {
    "numba": (
        "parallelism.alike_kernels",
        "parallelism.edge_kernels",
        "parallelism.longest_path_kernels",
        "parallelism.rotation_kernels",
        "parallelism.transformers.task_list_kernels",
        "parallelism.transformers.timeline_kernels",
        "routing.balanced_kernels",
        "routing.clos.annealing_kernels",
        "routing.clos.best",
        "routing.clos.bound_kernels",
        "routing.clos.chase_kernels",
        "routing.clos.coloring_kernels",
        "routing.clos.optimum",
        "routing.clos.place_kernels",
        "routing.clos.rotation_kernels",
        "routing.clos.simulate_kernels",
        "routing.clos.state",
        "routing.collectives.meeting_kernels",
        "routing.flow_kernels",
        "routing.k_shortest_kernels",
        "routing.multicommodity_kernels",
        "routing.path_kernels",
        "routing.unsplittable_kernels",
        "routing.valiant_kernels",
        "topoopt.bounds.critical_kernels",
        "topoopt.evaluate.scheduling",
        "topoopt.fabric.circuits_kernels",
        "topoopt.fabric.flows_kernels",
        "topoopt.fabric.htsim_kernels",
        "topoopt.fabric.iteration_kernels",
        "topoopt.fabric.ring_trees_kernels",
        "topoopt.fabric.rings_kernels",
        "topoopt.fabric.rotated_kernels",
        "topoopt.fabric.fluid_kernels",
        "topoopt.fabric.symmetry_kernels",
        "topoopt.fabric.packet_kernels",
        "topoopt.fabric.packet_queue_kernels",
        "topoopt.fabric.varying_kernels",
        "topoopt.plan.rebuild",
        "topoopt.topology.annealed_kernels",
        "topoopt.topology.assignment_kernels",
        "topoopt.topology.cayley_kernels",
        "topoopt.topology.circulant_kernels",
        "topoopt.topology.near_matching",
    ),
    "pydantic": (
        "parallelism.models.schema",
        "parallelism.operator_records",
        "parallelism.transformers.records",
        "topoopt.clos.jobs_schema",
        "topoopt.formats.collective_schema",
        "topoopt.plan.plan",
        "topoopt.topology.network_schema",
    ),
}
COMMANDS = "topoopt.cli."
SOURCES = {name_of(path): path for path in modules()}


@functools.cache
def executed_imports(name):
    """What a module imports at run time: (whether inside a function, module of ours or library)."""

    def below(node, inside):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for child in node.orelse:
                yield from below(child, inside)
            return
        if isinstance(node, ast.Import):
            yield from ((inside, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from ((inside, each if each in SOURCES else node.module) for each in full)
            # The decorators of kernels import numba when they are applied, as the module loads.
            if not inside and node.module == "codesign_base.jit":
                yield from ((False, "numba") for each in node.names if each.name in DECORATORS)
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from below(child, inside)

    return frozenset(below(parsed(SOURCES[name]), False))


@functools.cache
def libraries_loaded_by(name):
    """Top-level names of all libraries that importing a module of ours loads."""
    found, seen, waiting = set(), set(), [name]
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        if "." in module:
            waiting.append(module.rpartition(".")[0])
        for inside, imported in executed_imports(module):
            if not inside and imported in SOURCES:
                waiting.append(imported)
            elif not inside:
                found.add(imported.partition(".")[0])
    return found


def test_modules_are_imported_inside_functions_for_their_weight_only():
    library_of = {name: library for library, names in LOADED_LATE.items() for name in names}
    assert len(library_of) == sum(map(len, LOADED_LATE.values())), "a module is listed twice"
    late = {
        (name, imported)
        for name in SOURCES
        if not f"{name}.".startswith(COMMANDS)
        for inside, imported in executed_imports(name)
        if inside and imported in SOURCES
    }
    for name, imported in sorted(late):
        library = library_of.get(imported)
        assert library, f"{name} imports {imported} inside a function; import it at the top"
        assert library not in libraries_loaded_by(name), (
            f"{name} imports {imported} inside a function and loads {library} all the same"
        )
    for imported, library in library_of.items():
        assert imported in {each for _, each in late}, f"{imported} is never imported late"
        assert library in libraries_loaded_by(imported), f"{imported} does not load {library}"


def test_a_decorated_kernel_loads_numba():
    # Nothing in the module says so; the table above relies on it.
    assert "numba" in libraries_loaded_by("routing.path_kernels")
    program = "import sys, routing.path_kernels; print('numba' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert result.stdout.strip() == "True"


@pytest.mark.parametrize("module", ["topoopt", "topoopt.problem.units", "topoopt.experiment",
                                    "routing", "parallelism", "codesign_base"])  # fmt: skip
def test_import_is_light(module):
    program = f"import sys, {module}; print(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.split()
    assert module.split(".")[0] in output
    assert not set(output) & set(HEAVY)


def test_help_needs_no_numpy():
    program = (
        "import sys; from topoopt.cli.app import app; app(['--help'], standalone_mode=False); "
        "print('numpy' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert result.stdout.splitlines()[-1] == "False"


def pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert len({canonicalize_name(pin.name) for pin in found}) == len(found)
    return {canonicalize_name(pin.name): pin for pin in found}


def declared():
    project = PROJECT["project"]
    extras = project["optional-dependencies"].values()
    return [Requirement(r) for r in (*project["dependencies"], *(r for e in extras for r in e))]


def test_every_dependency_is_pinned_within_its_range():
    pinned = pins()
    for requirement in declared():
        pin = pinned.get(canonicalize_name(requirement.name))
        assert pin is not None, f"{requirement.name} is not in constraints.txt"
        (specifier,) = pin.specifier
        assert specifier.operator == "=="
        assert specifier.version in requirement.specifier, f"{pin} is not {requirement}"


def test_ci_script():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_licence():
    text = (ROOT / "LICENSE").read_text()
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert re.search(r"Apache License\s+Version 2\.0, January 2004", text)
    assert "END OF TERMS AND CONDITIONS" in text
