"""What any division of ports between rings and exchange leaves possible, before wiring."""

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.optimize import linprog

from codesign_base.arrays import Floats
from parallelism.builder import TaskGraphBuilder
from parallelism.graph import Mode
from parallelism.models.presets import get_model
from topoopt.bounds.everything import everything_bound
from topoopt.bounds.space_terms import heaviest_path
from topoopt.experiment import Experiment, run_from_command_line
from topoopt.studies.setting import setting

SHARDS = (1, 2, 4)
"""Parameter shards of a layer: all replicas alike, halves or fourths of a block of four servers."""


@dataclass(frozen=True)
class Layers:
    """What each dense layer takes, for each number of shards; arrays (layers, `SHARDS`), seconds.

    Parameters
    ----------
    forward, backward : float64 array
        Device time of a part on the heaviest path; 0 elsewhere, infinite where it is not legal.
    summed : float64 array
        Gradients that a server sends in rings, over one port.
    exchanged : float64 array
        Activations that a server receives in its block, over one port; gradients take as long.
    """

    forward: Floats
    backward: Floats
    summed: Floats
    exchanged: Floats


def layers_of(builder: TaskGraphBuilder, rate: float) -> Layers:
    """Return the dense layers of a model on all servers, with ports of ``rate`` bytes/s."""
    graph, servers = builder.graph, builder.servers
    times = [builder.part_time(i, servers, 1, Mode.OUTPUT) for i in range(len(graph.operators))]
    path = set(heaviest_path(graph, np.array([t.forward + t.backward for t in times])))
    dense = [i for i, op in enumerate(graph.operators) if op.parameters and not op.sparse]
    forward, backward, summed, exchanged = (np.zeros((len(dense), len(SHARDS))) for _ in range(4))
    for row, i in enumerate(dense):
        op = graph.operators[i]
        for column, shards in enumerate(SHARDS):
            modes = [s.mode for s in op.splits if s.extent % shards == 0] or [Mode.OUTPUT]
            if shards > 1 and (not op.splits or builder.batch % (servers // shards)):
                forward[row, column] = np.inf
                continue
            time = builder.part_time(i, servers // shards, shards, min(modes))
            if i in path:
                forward[row, column], backward[row, column] = time.forward, time.backward
            reduced = 2.0 * (1.0 - shards / servers) * graph.parameter_bytes(i) / shards
            summed[row, column] = reduced / rate
            made = graph.output_bytes(i) * builder.batch / servers
            if graph.consumers[i]:
                exchanged[row, column] = (shards - 1) * made / rate
    return Layers(forward, backward, summed, exchanged)


def least_seconds(layers: Layers, ports: tuple[float, float, float, float]) -> float:
    """Return the least time of an iteration whose ports are divided so.

    Of a block of four servers a layer in fourths has one shard on each; one in halves has each half
    twice, and each server a partner that has the other half for the same samples. Transfers go
    to their servers directly, and a ring from member to member. So a ring over all servers leaves
    every block, and every pair of partners, at least once, and one over halves or fourths has no
    links to those with other shards. The forward exchange of a layer precedes all AllReduces; after
    it exchange and AllReduce share the ports in any order. Layers may be divided into parts of
    different shards, so that this is a linear program, whose least value is not above that of any
    choice.

    Parameters
    ----------
    layers : Layers
    ports : tuple of four floats
        Of each server, to its partner, to the other server of the block with the other half, to
        that with the same half, and to other blocks.

    Returns
    -------
    float
        Seconds; infinite where nothing is possible.
    """
    partner, across, within, out = ports
    each = layers.exchanged[:, 2] / 3.0
    waits = np.zeros_like(layers.forward)
    with np.errstate(divide="ignore", invalid="ignore"):
        waits[:, 1] = np.nan_to_num(layers.exchanged[:, 1] / partner, posinf=np.inf)
        waits[:, 2] = np.nan_to_num(each / min(partner, across, within), posinf=np.inf)
    legal = np.isfinite(layers.forward) & np.isfinite(waits)
    rings = layers.summed
    same = rings * np.array([0.0, 1.0, 1.0])
    same[:, 2] += each
    unpaired = rings * np.array([0.5, 1.0, 1.0])
    unpaired[:, 2] += 2.0 * each
    # After the forward pass: the backward pass in series; all links; those that leave a block;
    # those that keep a half; those that leave a pair.
    after = [
        (layers.backward + np.where(legal, waits, 0.0), 1.0),
        (rings + layers.exchanged, sum(ports)),
        (rings * np.array([0.25, 0.5, 1.0]), out),
        (same, within + out),
        (unpaired, sum(ports) - partner),
    ]
    rows = [np.append(np.where(legal, load, 0.0).ravel(), -rate) for load, rate in after]
    cost = np.append(np.where(legal, layers.forward + waits, 0.0).ravel(), 1.0)
    whole = np.zeros((len(legal), legal.size + 1))
    for layer in range(len(legal)):
        whole[layer, layer * len(SHARDS) : (layer + 1) * len(SHARDS)] = 1.0
    solved = linprog(
        cost,
        A_ub=np.array(rows),
        b_ub=np.zeros(len(rows)),
        A_eq=whole,
        b_eq=np.ones(len(legal)),
        bounds=[(0.0, float(ok)) for ok in legal.ravel()] + [(0.0, None)],
        method="highs",
    )
    found = solved.fun if solved.status == 0 else None
    return float("inf") if found is None else float(found)


def case(model: str, servers: int, degree: int) -> dict[str, object]:
    """Find the best division of ports of one preset.

    Parameters
    ----------
    model : str
    servers, degree : int
        A multiple of four; directed ports of 100 Gbps.

    Returns
    -------
    dict
        The columns of `EXPERIMENT`.
    """
    given = setting(get_model(model), servers, degree, 100.0)
    layers = layers_of(given.builder, given.cluster.port_rate)
    bound = everything_bound(given.family, given.cluster).seconds
    splits = [
        (float(p), float(a), float(w), float(degree - p - a - w))
        for p, a, w in product(range(degree), repeat=3)
        if p + a + w < degree
    ]
    least, (partner, across, within, out) = min(
        (least_seconds(layers, split), split) for split in splits
    )
    return {
        "bound_s": bound,
        "least_s": least,
        "over_bound": least / bound - 1.0,
        "partner": int(partner),
        "across": int(across),
        "within": int(within),
        "out": int(out),
    }


EXPERIMENT = Experiment(
    name="port-phases",
    description="The least time of any division of ports between rings and exchange.",
    source="extends TopoOpt (NSDI 2023), section 4: the degree split of one topology",
    grid={"model": ["dlrm", "ncf"], "servers": [16, 128], "degree": [4, 8]},
    quick_grid={"servers": [16]},
    columns=("bound_s", "least_s", "over_bound", "partner", "across", "within", "out"),
    case=case,
)

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
