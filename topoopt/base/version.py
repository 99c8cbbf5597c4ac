"""The version of this installation, which results and pages carry."""

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """Return the version of topoopt, ``0+unknown`` in a source tree that was never installed."""
    try:
        return version("topoopt")
    except PackageNotFoundError:
        return "0+unknown"
