"""DLRM: a bottom MLP and embedding bags, concatenated into a top MLP."""

from collections.abc import Sequence
from math import isfinite

from codesign_base import InputError
from codesign_base.arguments import is_number, of_python_numbers, several, told
from codesign_base.counted import counted
from parallelism.graph import ModelGraph
from parallelism.operators.builder import GraphBuilder
from parallelism.operators.elementwise import concat
from parallelism.operators.layers import dense, embedding
from parallelism.operators.shapes import MOST_OPERATORS, check_counts, check_list


def skewed_bags(where: str, tables: int, bag: int, skew: float) -> list[int]:
    """Return the rows that a sample looks up in each table, ``tables * bag`` of them in all.

    Parameters
    ----------
    where : str
        What errors call the model.
    tables, bag : int
        At least 1.
    skew : float
        Zipf's exponent, at least 0.

    Returns
    -------
    list of int
        Descending, each at least 1: one row for each, the others in proportion to (t + 1) ** -skew,
        those left over by the largest remainders.

    Raises
    ------
    InputError
        If the exponent is negative or not finite.
    """
    if not (is_number(skew) and skew >= 0 and isfinite(skew)):
        raise InputError(f"{where}: lookup_skew is {told(skew)}; give an exponent of at least 0")
    if skew == 0:
        return [bag] * tables
    weights = [(t + 1.0) ** -skew for t in range(tables)]
    more, total = tables * (bag - 1), sum(weights)
    exact = [more * weight / total for weight in weights]
    whole = [int(share) for share in exact]
    order = sorted(range(tables), key=lambda t: (whole[t] - exact[t], t))
    for t in order[: more - sum(whole)]:
        whole[t] += 1
    return [1 + count for count in whole]


@of_python_numbers
def dlrm(
    *,
    tables: int = 64,
    rows: int = 10_000_000,
    dim: int = 128,
    bag: int = 100,
    lookup_skew: float = 0.0,
    dims: Sequence[int] | None = None,
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
    lookup_skew : float
        Zipf's exponent of lookups over tables: table t (from 0) has a share of all ``tables * bag``
        lookups of a sample in proportion to (t + 1) ** -lookup_skew, and at least one. 0: all have
        ``bag``. Device time follows; what a table sends is its sum, however many rows are in it.
    dims : sequence of int, optional
        Columns of each table, in place of ``dim``: what each sends, and holds.
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
        If a number is below 1 (``top_layers`` and ``lookup_skew`` may be 0), there are more than
        100,000 operators, or ``dims`` has not one for each table.

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
    # What makes an operator each is bounded before there are lists of as many.
    check_counts(where, most=MOST_OPERATORS, tables=tables)
    check_counts(where, rows=rows, dim=dim, bag=bag)
    check_counts(where, bottom_width=bottom_width, bottom_layers=bottom_layers)
    check_counts(where, top_width=top_width)
    check_counts(where, 0, top_layers=top_layers)
    widths = [dim] * tables
    if dims is not None:
        widths = list(several(f"{where}: dims", dims, "a whole number for each table"))
    if len(widths) != tables:
        raise InputError(
            f"{where}: dims has {counted(len(widths), 'number')} for {counted(tables, 'table')}; "
            "give one for each"
        )
    check_list(where, dims=widths)
    bags = skewed_bags(where, tables, bag, lookup_skew)
    build = GraphBuilder(name, batch_per_gpu, element_bytes)
    x = build.input(bottom_width)
    for layer in range(bottom_layers):
        x = dense(build, f"bottom_{layer}", x, bottom_width)
    looked_up = []
    for t, (width, count) in enumerate(zip(widths, bags, strict=True)):
        # Published profiles are of bags of one size.
        key = None if count == bag else f"Embed_{rows}x{width}_bag{count}"
        looked_up.append(embedding(build, f"table_{t}", rows, width, bag=count, profile_key=key))
    x = concat(build, "concat", [x, *looked_up])
    for layer in range(top_layers + 1):
        x = dense(build, f"top_{layer}", x, top_width)
    dense(build, f"top_{top_layers + 1}", x, 1)
    return build.build()
