"""The version that results carry."""

import importlib.metadata
from importlib.metadata import PackageNotFoundError, version

from topoopt.base.version import installed_version


def test_the_installed_version():
    assert installed_version() == version("topoopt")


def test_a_source_tree_that_was_never_installed_has_a_version(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert installed_version() == "0+unknown"
