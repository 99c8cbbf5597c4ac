"""LIBRA's published inputs, from a directory that holds them, or their built-in counterparts."""

import os
import sys
from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path

from codesign_base import InputError
from codesign_base.counted import counted
from codesign_base.paths import is_directory
from topoopt.bandwidth.model.builtin import builtin_workload
from topoopt.bandwidth.model.communicator import (
    Communicator,
    load_communicator,
    whole_network,
)
from topoopt.bandwidth.model.cost import CostModel, default_cost, load_cost
from topoopt.bandwidth.model.network import MultiDimNetwork, load_multi_dim_network, parse_network
from topoopt.bandwidth.model.workload import LayerWorkload, load_layer_workload

WORKLOADS = ("Turing_NLG", "GPT_3", "MSFT_1T", "DLRM", "ResNet_50")
NOTATION = {3: "RI(16)_FC(8)_SW(32)", 4: "RI(4)_FC(8)_RI(4)_SW(32)"}
FILES, BUILT_IN = "files", "built-in"
VARIABLE = "TOPOOPT_DATA"


@dataclass(frozen=True, eq=False)
class LibraInputs:
    """What one allocation starts from.

    Parameters
    ----------
    network : MultiDimNetwork
    workload : LayerWorkload
    communicator : Communicator or None
        None: the workload's own groups.
    cost : CostModel
    """

    network: MultiDimNetwork
    workload: LayerWorkload
    communicator: Communicator | None
    cost: CostModel


def data_option() -> None:
    """Take ``--data DIR`` from a script's command line, for this process and its children.

    A directory without ``libra`` in it ends the script with status 2.
    """
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--data")
    found, sys.argv[1:] = parser.parse_known_args(sys.argv[1:])
    if found.data is None:
        return
    if not is_directory(Path(found.data) / "libra"):
        parser.exit(
            2,
            f"error: --data {found.data!r} has no directory libra in it; give the directory that "
            "holds LIBRA's inputs as libra/network, libra/workload, ...\n",
        )
    os.environ[VARIABLE] = found.data


def source() -> str:
    """Return "files" if ``TOPOOPT_DATA`` names a directory with LIBRA's inputs, or "built-in"."""
    given = os.environ.get(VARIABLE)
    return FILES if given and is_directory(Path(given) / "libra") else BUILT_IN


def libra_inputs(workload: str, dimensions: int, source: str) -> LibraInputs:
    """Return the inputs of one workload on LIBRA's 3D or 4D network of 4,096 NPUs.

    Parameters
    ----------
    workload : str
        One of `WORKLOADS`.
    dimensions : {3, 4}
    source : {"files", "built-in"}
        LIBRA's files (two blocks of a transformer), or built-in workloads at full depth.

    Returns
    -------
    LibraInputs
        DLRM, which has no communicator file, runs all collectives over all NPUs.

    Raises
    ------
    InputError
        If a name is unknown or a file cannot be read.
    """
    if workload not in WORKLOADS or dimensions not in NOTATION:
        raise InputError(
            f"workload {workload!r} in {counted(dimensions, 'dimension')}; choose "
            f"{', '.join(WORKLOADS)} in 3 or 4"
        )
    if source == BUILT_IN:
        name = workload.lower().replace("_", "-")
        return LibraInputs(
            parse_network(NOTATION[dimensions]), builtin_workload(name), None, default_cost()
        )
    given = os.environ.get(VARIABLE)
    if given is None:
        raise InputError(f"LIBRA's inputs are not given; set {VARIABLE}, or use --data DIR")
    base = Path(given) / "libra"
    network = load_multi_dim_network(base / "network" / f"{dimensions}d_network.yml")
    whole = whole_network(network)
    groups = Communicator((whole, whole, whole))
    for end in (f"_{dimensions}d.yml", f"_{dimensions}D.yml"):
        path = base / "communicator" / (workload + end)
        if path.is_file():
            groups = load_communicator(path, network)
    return LibraInputs(
        network,
        load_layer_workload(base / "workload" / f"{workload}.txt"),
        groups,
        load_cost(base / "cost_model" / f"{dimensions}d_cost_model.yml"),
    )
