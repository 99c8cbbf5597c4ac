"""The version and the code of this installation, which results and pages carry."""

from functools import cache

from codesign_base.jit import PACKAGES, installation_root, sources_hash


def installed_version() -> str:
    """Return the version of topoopt, ``0+unknown`` in a source tree that was never installed."""
    # It loads parsers of e-mail and archives, a fifth of what the command line needs to start.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("topoopt")
    except PackageNotFoundError:
        return "0+unknown"


@cache
def package_hash() -> str:
    """Return a hash of the Python sources of this installation's packages."""
    root = installation_root()
    return sources_hash(
        [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))], root
    )
