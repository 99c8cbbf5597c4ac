"""Network files as GraphML, with units in the attribute names as in node-link JSON.

Node attribute ``kind`` ("host" or "switch"), edge attributes ``capacity_gbps`` (1e9 bits/s),
``latency_ns`` and ``cables``. The edges of an undirected graph are links both ways.
"""

import io
import warnings
from pathlib import Path
from typing import Any

from codesign_base import InputError
from parallelism.reading import read_text
from routing.network import Network
from topoopt.base.atomic import write_bytes_atomically
from topoopt.topology.network_json import network_graph, network_of_document


def save_graphml(network: Network, path: str | Path) -> None:
    """Write a network as GraphML.

    Parameters
    ----------
    network : Network
    path : str or Path

    Raises
    ------
    InputError
        If the file cannot be written, or the network's name holds what XML cannot.
    """
    import networkx as nx

    if not all(char.isprintable() for char in network.name):
        raise InputError(
            f"network name {network.name!r} holds characters that XML cannot; rename the network"
        )
    buffer = io.BytesIO()
    nx.write_graphml_xml(network_graph(network), buffer)
    write_bytes_atomically(Path(path), buffer.getvalue() + b"\n")


def load_graphml(path: str | Path) -> Network:
    """Read a network from GraphML.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Network
        Hosts in the order of the file, then switches.

    Raises
    ------
    InputError
        If the file cannot be read, is not GraphML, misses a field or has one that is not known.
    """
    where = f"network file {str(path)!r}"
    document = _document(read_text(path, "network file"), where)
    return network_of_document(document, where, Path(path).stem)


def _document(text: str, where: str) -> dict[str, Any]:
    """Return the node-link form of a GraphML text."""
    import xml.etree.ElementTree as ElementTree

    import networkx as nx

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what networkx finds odd, the schema refuses
            graphs = list(nx.GraphMLReader(node_type=str)(string=text.encode()))
    except ElementTree.ParseError as error:
        raise InputError(f"{where} is not well-formed XML ({error}); check the file") from None
    except (nx.NetworkXError, LookupError, ValueError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{where} is not readable GraphML ({reason}); check the file") from None
    if len(graphs) != 1:
        raise InputError(f"{where} holds {len(graphs)} graphs; give a GraphML file of one network")
    graph = graphs[0]
    # networkx stores the defaults of attributes, and the ids of edges, beside what is ours.
    header = {k: v for k, v in graph.graph.items() if k not in ("node_default", "edge_default")}
    edges = []
    for source, target, data in graph.edges(data=True):
        fields = {k: v for k, v in data.items() if k != "id"}
        edges.append({"source": source, "target": target, **fields})
        if not graph.is_directed():
            edges.append({"source": target, "target": source, **fields})
    return {
        "graph": header,
        "nodes": [{"id": node, **data} for node, data in graph.nodes(data=True)],
        "edges": edges,
    }
