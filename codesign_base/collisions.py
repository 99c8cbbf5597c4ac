"""Notice other distributions that install packages under the project's import names."""

from collections.abc import Mapping, Sequence
from functools import cache

DISTRIBUTION = "topoopt"
IMPORT_NAMES = ("parallelism", "routing", "topoopt", "codesign_base")


def distribution_conflicts(
    providers: Mapping[str, Sequence[str]] | None = None,
) -> list[str]:
    """Find distributions other than topoopt that own one of its import names.

    Unrelated public distributions are called ``parallelism`` and ``routing``; whichever is
    installed last overwrites files of the other, and pip does not say so.

    Parameters
    ----------
    providers : mapping of str to sequence of str, optional
        Distributions behind each import name; by default those of this environment
        (`importlib.metadata.packages_distributions`).

    Returns
    -------
    list of str
        One sentence a conflict, naming the remedy; empty if all is well.

    Examples
    --------
    >>> distribution_conflicts({"routing": ["topoopt"]})
    []
    """
    if providers is None:
        providers = _installed()
    conflicts = []
    for name in IMPORT_NAMES:
        for other in sorted(set(providers.get(name, ())) - {DISTRIBUTION}):
            conflicts.append(
                f"the import name {name!r} is also claimed by the installed distribution "
                f"{other!r}, whose files mix with those of {DISTRIBUTION}; uninstall {other!r}, "
                f"then reinstall {DISTRIBUTION}"
            )
    return conflicts


@cache
def _installed() -> Mapping[str, Sequence[str]]:
    # It reads what all distributions say of their files.
    from importlib.metadata import packages_distributions

    return packages_distributions()
