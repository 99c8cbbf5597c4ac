"""Other distributions under the project's import names are noticed."""

import importlib.metadata

from codesign_base.collisions import IMPORT_NAMES, distribution_conflicts


def test_no_conflict_in_this_environment():
    assert distribution_conflicts() == []
    providers = importlib.metadata.packages_distributions()
    assert all(set(providers[name]) == {"topoopt"} for name in IMPORT_NAMES)


def test_foreign_distributions_are_named():
    fake = {"routing": ["topoopt", "routing"], "parallelism": ["parallelism"], "numpy": ["numpy"]}
    conflicts = distribution_conflicts(fake)
    assert len(conflicts) == 2
    assert "'parallelism'" in conflicts[0]
    assert "'routing'" in conflicts[1]
    assert all("uninstall" in sentence for sentence in conflicts)


def test_repeated_and_missing_entries_are_no_conflict():
    assert distribution_conflicts({"routing": ["topoopt", "topoopt"]}) == []
    assert distribution_conflicts({}) == []
