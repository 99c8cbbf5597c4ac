"""Network files: node-link JSON as networkx writes it, with units in the attribute names.

Graph attributes: ``name``, ``hosts``, ``switches``. Nodes have ``id`` and ``kind`` ("host" or
"switch"; hosts come first). Edges have ``source``, ``target``, ``capacity_gbps`` (1e9 bits/s),
``latency_ns`` and ``cables`` (parallel cables that the capacity sums). Readers accept ``edges``
and ``links`` for the list.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from routing.network import Network
from topoopt.atomic import write_text_atomically
from topoopt_base import InputError

_BYTES_PER_GBIT = 1e9 / 8


def save_network(network: Network, path: str | Path) -> None:
    """Write a network file.

    Parameters
    ----------
    network : Network
    path : str or Path
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
            capacity_gbps=float(network.capacity[link]) / _BYTES_PER_GBIT,
            latency_ns=float(network.latency[link]) * 1e9,
            cables=int(network.multiplicity[link]),
        )
    document = nx.node_link_data(graph, edges="edges")
    write_text_atomically(Path(path), json.dumps(document) + "\n")


def load_network(path: str | Path) -> Network:
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
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"network file {path}: {error.strerror}; give an existing file") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(
            f"network file {path} is not valid JSON ({error}); it may be truncated, so write it "
            "again"
        ) from None
    try:
        return _network(document, path)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"network file {path} is not a node-link network ({type(error).__name__}: {error}); "
            "see the format's description"
        ) from None


def _network(document: dict[str, Any], path: str | Path) -> Network:
    edges = document["edges"] if "edges" in document else document["links"]
    nodes = document["nodes"]
    kinds = {node["id"]: node.get("kind", "host") for node in nodes}
    hosts = [node for node, kind in kinds.items() if kind == "host"]
    switches = [node for node, kind in kinds.items() if kind == "switch"]
    if len(hosts) + len(switches) != len(nodes):
        raise InputError(f"network file {path}: node kinds must be 'host' or 'switch', ids unique")
    number = {node: index for index, node in enumerate([*hosts, *switches])}
    known = {"source", "target", "capacity_gbps", "latency_ns", "cables", "key"}
    source, target, capacity, latency, cables = [], [], [], [], []
    for edge in edges:
        odd = sorted(set(edge) - known)
        if odd:
            raise InputError(f"network file {path}: edge has unknown field {odd[0]!r}; remove it")
        source.append(number[edge["source"]])
        target.append(number[edge["target"]])
        capacity.append(float(edge["capacity_gbps"]) * _BYTES_PER_GBIT)
        latency.append(float(edge["latency_ns"]) * 1e-9)
        cables.append(int(edge.get("cables", 1)))
    repeat = np.array(cables, dtype=np.int64)
    if np.any(repeat < 1):
        raise InputError(f"network file {path}: cables must be at least 1")
    return Network.from_links(
        str(document.get("graph", {}).get("name", Path(path).stem)),
        len(hosts),
        len(switches),
        np.repeat(source, repeat),
        np.repeat(target, repeat),
        np.repeat(np.array(capacity) / repeat, repeat),
        np.repeat(latency, repeat),
    )
