"""Network files: node-link JSON as networkx writes it, with units in the attribute names.

Graph attributes: ``name``, ``hosts``, ``switches``. Nodes have ``id`` and ``kind`` ("host" or
"switch"; hosts come first). Edges have ``source``, ``target``, ``capacity_gbps`` (1e9 bits/s),
``latency_ns`` and ``cables`` (parallel cables that the capacity sums). Readers accept ``edges``
or ``links`` for the list, and refuse fields that they do not know.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from codesign_base import InputError
from codesign_base.counted import counted
from parallelism.reading import parse_json, read_text, schema_fault
from routing.network import Network
from topoopt.base.atomic import write_text_atomically
from topoopt.problem.units import BYTES_PER_GBIT

if TYPE_CHECKING:
    import networkx as nx

    from topoopt.topology.network_schema import NetworkFile


def save_node_link(network: Network, path: str | Path) -> None:
    """Write a network file.

    Parameters
    ----------
    network : Network
    path : str or Path
    """
    write_text_atomically(Path(path), json.dumps(network_document(network)) + "\n")


def network_document(network: Network) -> dict[str, Any]:
    """Return what a network file of a network holds.

    Parameters
    ----------
    network : Network

    Returns
    -------
    dict
    """
    import networkx as nx

    document: dict[str, Any] = nx.node_link_data(network_graph(network), edges="edges")
    return document


def network_graph(network: Network) -> "nx.DiGraph[int]":
    """Return a network as a networkx graph, with the attributes that files have.

    Parameters
    ----------
    network : Network
    """
    import networkx as nx

    graph: nx.DiGraph[int] = nx.DiGraph(
        name=network.name, hosts=network.hosts, switches=network.switches
    )
    for node in range(network.nodes):
        graph.add_node(node, kind="host" if node < network.hosts else "switch")
    for link in range(network.links):
        graph.add_edge(
            int(network.source[link]),
            int(network.target[link]),
            capacity_gbps=float(network.capacity[link]) / BYTES_PER_GBIT,
            latency_ns=float(network.latency[link]) * 1e9,
            cables=int(network.multiplicity[link]),
        )
    return graph


def load_node_link(path: str | Path) -> Network:
    """Read a network file.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Network

    Raises
    ------
    InputError
        If the file cannot be read, misses a field or has one that is not known.
    """
    where = f"network file {str(path)!r}"
    document = parse_json(read_text(path, "network file"), where)
    if not isinstance(document, dict):
        raise InputError(f"{where} holds no object of fields; give a network file")
    if "links" in document and "edges" not in document:
        document["edges"] = document.pop("links")
    return network_of_document(document, where, Path(path).stem)


def network_of_document(document: dict[str, Any], where: str, name: str) -> Network:
    """Return the network of a node-link document.

    Parameters
    ----------
    document : dict
    where : str
        The file, for the message.
    name : str
        Of the network, if the document has none.

    Raises
    ------
    InputError
        If the document misses a field or has one that is not known.
    """
    try:
        return _network(_checked(document), name)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _checked(document: dict[str, Any]) -> "NetworkFile":
    """Check the types and fields of a document."""
    from pydantic import ValidationError

    from topoopt.topology.network_schema import NetworkFile

    try:
        return NetworkFile.model_validate(document)
    except ValidationError as error:
        raise InputError(schema_fault(error)) from None


def _network(file: "NetworkFile", name: str) -> Network:
    hosts = [node.id for node in file.nodes if node.kind == "host"]
    switches = [node.id for node in file.nodes if node.kind == "switch"]
    number = {node: index for index, node in enumerate([*hosts, *switches])}
    if len(number) < len(file.nodes):
        raise InputError("two nodes have one id; give each its own")
    for what, stated, found in (
        ("hosts", file.graph.hosts, len(hosts)),
        ("switches", file.graph.switches, len(switches)),
    ):
        if stated is not None and stated != found:
            raise InputError(
                f"graph.{what} is {stated}, but {counted(found, 'node is', 'nodes are')} {what}"
            )
    merged: dict[tuple[int, int], tuple[float, float, int]] = {}
    for edge in file.edges:
        for end in (edge.source, edge.target):
            if end not in number:
                raise InputError(f"an edge joins {end!r}, which is no node")
        pair = (number[edge.source], number[edge.target])
        capacity, latency, cables = merged.get(pair, (0.0, 0.0, 0))
        merged[pair] = (
            capacity + edge.capacity_gbps * BYTES_PER_GBIT,
            max(latency, edge.latency_ns / 1e9),
            cables + edge.cables,
        )
    pairs = sorted(merged)
    return Network(
        file.graph.name if file.graph.name is not None else name,
        len(hosts),
        len(switches),
        np.array([pair[0] for pair in pairs], dtype=np.int64),
        np.array([pair[1] for pair in pairs], dtype=np.int64),
        np.array([merged[pair][0] for pair in pairs], dtype=np.float64),
        np.array([merged[pair][1] for pair in pairs], dtype=np.float64),
        np.array([merged[pair][2] for pair in pairs], dtype=np.int64),
    )
