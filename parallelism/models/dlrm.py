"""DLRM: a bottom MLP and embedding bags, concatenated into a top MLP."""

from parallelism.graph import ModelGraph
from parallelism.operators.builder import GraphBuilder
from parallelism.operators.elementwise import concat
from parallelism.operators.layers import dense, embedding
from parallelism.operators.shapes import check_counts


def dlrm(
    *,
    tables: int = 64,
    rows: int = 10_000_000,
    dim: int = 128,
    bag: int = 100,
    bottom_width: int = 2048,
    bottom_layers: int = 7,
    top_width: int = 4096,
    top_layers: int = 14,
    batch_per_gpu: int = 128,
    element_bytes: int = 4,
    name: str = "dlrm",
) -> ModelGraph:
    """Build DLRM as the TopoOpt experiments do.

    Parameters
    ----------
    tables, rows, dim, bag : int
        Embedding tables of ``rows x dim``; each sample sums ``bag`` rows of every table.
    bottom_width, bottom_layers : int
        Bottom MLP, all layers ``bottom_width -> bottom_width`` on an input that wide.
    top_width, top_layers : int
        Top MLP: concatenation -> ``top_width``, then ``top_layers`` square layers, then -> 1.
    batch_per_gpu, element_bytes : int
    name : str
        Name of the graph.

    Returns
    -------
    ModelGraph
        ``bottom_layers + tables + 1 + top_layers + 2`` operators.

    Raises
    ------
    InputError
        If a number is below 1 (``top_layers`` may be 0).

    References
    ----------
    .. [1] Wang et al., TopoOpt, NSDI 2023, section 5.1 (DLRM workload), and its published
       simulator. The feature interaction is concatenation, not pairwise products.

    Examples
    --------
    >>> len(dlrm(tables=16).operators)
    40
    """
    where = f"model {name!r}"
    check_counts(where, tables=tables, rows=rows, dim=dim, bag=bag)
    check_counts(where, bottom_width=bottom_width, bottom_layers=bottom_layers)
    check_counts(where, top_width=top_width)
    check_counts(where, 0, top_layers=top_layers)
    build = GraphBuilder(name, batch_per_gpu, element_bytes)
    x = build.input(bottom_width)
    for layer in range(bottom_layers):
        x = dense(build, f"bottom_{layer}", x, bottom_width)
    bags = [embedding(build, f"table_{t}", rows, dim, bag=bag) for t in range(tables)]
    x = concat(build, "concat", [x, *bags])
    for layer in range(top_layers + 1):
        x = dense(build, f"top_{layer}", x, top_width)
    dense(build, f"top_{top_layers + 1}", x, 1)
    return build.build()
