"""What a JSON file of the project is: told by its fields, in one place."""

from enum import StrEnum
from typing import Any

MANIFEST = "topoopt-experiment-manifest/"
"""With what the schema of an experiment's manifest begins; its version follows."""


class Document(StrEnum):
    """The kinds of JSON files that commands take, as sentences call them."""

    PLAN = "a plan"
    COMPARISON = "a comparison"
    FRONTIER = "the answer of topoopt pareto"
    MANIFEST = "the manifest of an experiment"
    NETWORK = "a network"
    ROUTES = "a file of routes or forwarding tables"
    OTHER = "no file of topoopt's"


def kind_of(document: Any) -> Document:
    """Return what a parsed JSON document is, whether or not it is well formed.

    Parameters
    ----------
    document : object
        As `parallelism.reading.parse_json` returns it.

    Returns
    -------
    Document
    """
    if not isinstance(document, dict):
        return Document.OTHER
    # What `topoopt route` writes has a version, too, but hosts where plans have a cluster.
    if "schema_version" in document and "hosts" in document and {"pairs", "nodes"} & set(document):
        return Document.ROUTES
    # Plans have links, too, so they come before networks.
    if "schema_version" in document:
        return Document.PLAN
    if "fabrics" in document:
        return Document.COMPARISON
    if {"designs", "frontier", "objective"} <= set(document):
        return Document.FRONTIER
    if str(document.get("schema", "")).startswith(MANIFEST):
        return Document.MANIFEST
    if "nodes" in document or "edges" in document:
        return Document.NETWORK
    return Document.OTHER
