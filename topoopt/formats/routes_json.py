"""Routes and forwarding tables as JSON; docs/routing.md describes both files."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from routing.forwarding import ForwardingTables
from routing.routed import RoutedTraffic
from topoopt.base.atomic import write_text_atomically

_SCHEMA = 1


def save_routes(routed: RoutedTraffic, path: str | Path) -> None:
    """Write the routes of every pair with demand: links with weights, and paths where known.

    Parameters
    ----------
    routed : RoutedTraffic
    path : str or Path
    """
    network, routes = routed.network, routed.routes
    pairs: list[dict[str, Any]] = []
    for pair in np.flatnonzero(routed.demand).tolist():
        source, target = divmod(pair, network.hosts)
        links, weights = routes.row(source, target)
        entry: dict[str, Any] = {
            "source": source,
            "target": target,
            "links": [
                [a, b, weight]
                for a, b, weight in zip(
                    network.source[links].tolist(),
                    network.target[links].tolist(),
                    weights.tolist(),
                    strict=True,
                )
            ],
        }
        if routed.paths is not None:
            entry["paths"] = [
                {"nodes": list(nodes), "share": share}
                for nodes, share in routed.paths.paths(source, target)
            ]
        pairs.append(entry)
    document = {
        "schema_version": _SCHEMA,
        "method": str(routed.method),
        "network": network.name,
        "hosts": network.hosts,
        "switches": network.switches,
        "pairs": pairs,
    }
    write_text_atomically(Path(path), json.dumps(document) + "\n")


def save_tables(tables: ForwardingTables, path: str | Path) -> None:
    """Write forwarding tables.

    Parameters
    ----------
    tables : ForwardingTables
    path : str or Path
    """
    network = tables.network
    nodes = [
        {
            "node": node,
            "rules": [
                {"destination": t, "next": [[v, ratio] for v, ratio in hops]}
                for t in range(network.hosts)
                if (hops := tables.next_hops(node, t))
            ],
        }
        for node in range(network.nodes)
    ]
    document = {
        "schema_version": _SCHEMA,
        "network": network.name,
        "hosts": network.hosts,
        "nodes": nodes,
    }
    write_text_atomically(Path(path), json.dumps(document) + "\n")
