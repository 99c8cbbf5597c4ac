"""Neural collaborative filtering: a matrix-factorisation branch beside an MLP branch."""

from codesign_base import InputError
from codesign_base.arguments import of_python_numbers
from parallelism.graph import ModelGraph
from parallelism.operators.builder import GraphBuilder
from parallelism.operators.elementwise import concat, multiply
from parallelism.operators.layers import dense, embedding
from parallelism.operators.shapes import Tensor, check_counts


@of_python_numbers
def ncf(
    *,
    user_tables: int = 32,
    item_tables: int = 32,
    rows: int = 1_000_000,
    factor_dim: int = 64,
    mlp_dim: int = 128,
    bag: int = 100,
    mlp_width: int = 4096,
    mlp_layers: int = 8,
    batch_per_gpu: int = 128,
    element_bytes: int = 4,
    name: str = "ncf",
) -> ModelGraph:
    """Build neural collaborative filtering over many user and item tables.

    Parameters
    ----------
    user_tables, item_tables : int
        Tables of each kind; the factorisation branch multiplies users by items element-wise,
        so both concatenations must be equally wide: give the same number.
    rows : int
        Rows of every table.
    factor_dim, mlp_dim : int
        Columns of the tables of the factorisation branch and of the MLP branch.
    bag : int
        Rows summed a table and sample.
    mlp_width, mlp_layers : int
        MLP: concatenation -> ``mlp_width``, then ``mlp_layers - 1`` square layers.
    batch_per_gpu, element_bytes : int
    name : str
        Name of the graph.

    Returns
    -------
    ModelGraph

    Raises
    ------
    InputError
        If a number is below 1, or the two table counts differ.

    References
    ----------
    .. [1] Wang et al., TopoOpt, NSDI 2023, section 5.1 (NCF workload), and its published
       simulator. Bags of 100 follow from the memory recorded in its measured profile.
    """
    where = f"model {name!r}"
    check_counts(where, user_tables=user_tables, item_tables=item_tables, rows=rows, bag=bag)
    check_counts(where, factor_dim=factor_dim, mlp_dim=mlp_dim)
    check_counts(where, mlp_width=mlp_width, mlp_layers=mlp_layers)
    if user_tables != item_tables:
        raise InputError(
            f"{where}: user_tables is {user_tables} and item_tables {item_tables}; give the same "
            "number, since the factorisation branch multiplies users by items"
        )
    build = GraphBuilder(name, batch_per_gpu, element_bytes)

    def bags(branch: str, kind: str, count: int, dim: int) -> list[Tensor]:
        return [embedding(build, f"{branch}_{kind}_{t}", rows, dim, bag=bag) for t in range(count)]

    factor_users = bags("factor", "user", user_tables, factor_dim)
    factor_items = bags("factor", "item", item_tables, factor_dim)
    mlp_users = bags("mlp", "user", user_tables, mlp_dim)
    mlp_items = bags("mlp", "item", item_tables, mlp_dim)
    users = concat(build, "factor_users", factor_users) if user_tables > 1 else factor_users[0]
    items = concat(build, "factor_items", factor_items) if item_tables > 1 else factor_items[0]
    product = multiply(build, "factor_product", [users, items])
    factor = dense(build, "factor_output", product, 1)
    x = concat(build, "mlp_concat", [*mlp_users, *mlp_items])
    for layer in range(mlp_layers):
        x = dense(build, f"mlp_{layer}", x, mlp_width)
    both = concat(build, "concat", [factor, x])
    dense(build, "output", both, 1)
    return build.build()
