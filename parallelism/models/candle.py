"""CANDLE Uno: feature towers, concatenated with the doses into a deep dense network."""

from collections.abc import Sequence

from codesign_base.arguments import of_python_numbers
from parallelism.graph import ModelGraph
from parallelism.operators.builder import GraphBuilder
from parallelism.operators.elementwise import concat
from parallelism.operators.layers import dense
from parallelism.operators.shapes import MOST_OPERATORS, check_counts, check_list

# Cell RNA-seq, then descriptors and fingerprints of drug 1 and of drug 2.
UNO_FEATURES = (942, 5270, 2048, 5270, 2048)


@of_python_numbers
def candle(
    *,
    features: Sequence[int] = UNO_FEATURES,
    tower_layers: int = 16,
    width: int = 16384,
    dense_layers: int = 8,
    doses: int = 2,
    batch_per_gpu: int = 256,
    element_bytes: int = 4,
    name: str = "candle",
) -> ModelGraph:
    """Build the Uno drug-response network with unshared towers.

    Parameters
    ----------
    features : sequence of int
        Input width of each tower.
    tower_layers : int
        Layers of a tower: ``feature -> width``, the rest ``width -> width``.
    width : int
        Width of towers and dense layers.
    dense_layers : int
        Layers after the concatenation: ``(towers * width + doses) -> width``, the rest square.
    doses : int
        Scalar inputs that go straight to the concatenation.
    batch_per_gpu, element_bytes : int
    name : str
        Name of the graph.

    Returns
    -------
    ModelGraph
        Ending in ``width -> 1`` and ``1 -> 1`` layers.

    Raises
    ------
    InputError
        If a number is below 1 (``doses`` may be 0), or there is nothing to concatenate.

    References
    ----------
    .. [1] Wang et al., TopoOpt, NSDI 2023, section 5.1 (CANDLE workload), and its published
       simulator; the network is Uno of the CANDLE benchmarks.
    """
    where = f"model {name!r}"
    check_list(where, features=features)
    check_counts(where, tower_layers=tower_layers, width=width, dense_layers=dense_layers)
    check_counts(where, 0, MOST_OPERATORS, doses=doses)
    build = GraphBuilder(name, batch_per_gpu, element_bytes)
    tops = []
    for tower, extent in enumerate(features):
        x = build.input(extent)
        for layer in range(tower_layers):
            x = dense(build, f"tower_{tower}_{layer}", x, width)
        tops.append(x)
    x = concat(build, "concat", [*tops, *(build.input(1) for _ in range(doses))])
    for layer in range(dense_layers):
        x = dense(build, f"dense_{layer}", x, width)
    x = dense(build, "response", x, 1)
    dense(build, "output", x, 1)
    return build.build()
