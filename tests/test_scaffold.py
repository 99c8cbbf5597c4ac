"""What the repository promises about itself: packages, layers, lazy imports, pinned versions."""

import ast
import fnmatch
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
PACKAGES = ("parallelism", "routing", "topoopt", "codesign_base")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
HEAVY = (
    "cvxpy", "highspy", "matplotlib", "networkx", "numba", "ortools", "plotly", "rustworkx",
    "scipy", "sympy", "torch",
)  # fmt: skip


def modules():
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path):
    """All imports of a module, those inside functions too: (module, imported name or None)."""
    for node in ast.walk(ast.parse(path.read_text())):
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


@pytest.mark.parametrize("module", ["topoopt", "topoopt.problem.units", "topoopt.experiment",
                                    "routing", "parallelism", "codesign_base"])  # fmt: skip
def test_import_is_light(module):
    program = f"import sys, {module}; print(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.split()
    assert module.split(".")[0] in output
    assert not set(output) & set(HEAVY)


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
