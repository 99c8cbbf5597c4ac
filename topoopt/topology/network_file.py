"""Network files of either kind: node-link JSON or GraphML, told apart by name or content."""

from pathlib import Path

from codesign_base.arguments import check_kind, check_path
from parallelism.reading import read_text
from routing.network import Network
from topoopt.topology.graphml import load_graphml, save_graphml
from topoopt.topology.network_json import load_node_link, save_node_link

_GRAPHML = (".graphml", ".xml")


def load_network(path: str | Path) -> Network:
    """Read a network file.

    Parameters
    ----------
    path : str or Path
        ``.graphml`` and ``.xml`` are GraphML, ``.json`` is node-link JSON; otherwise the first
        character decides ("<" begins GraphML).

    Returns
    -------
    Network

    Raises
    ------
    InputError
        If the file cannot be read, misses a field or has one that is not known.
    """
    check_path("network file", path)
    suffix = Path(path).suffix.lower()
    if suffix in _GRAPHML or (
        suffix != ".json" and read_text(path, "network file").lstrip().startswith("<")
    ):
        return load_graphml(path)
    return load_node_link(path)


def save_network(network: Network, path: str | Path) -> None:
    """Write a network file: GraphML if its name ends so, node-link JSON otherwise.

    Parameters
    ----------
    network : Network
    path : str or Path

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    check_kind("network", network, Network, "a Network, such as load_network returns")
    check_path("network file", path)
    if Path(path).suffix.lower() in _GRAPHML:
        save_graphml(network, path)
    else:
        save_node_link(network, path)
