"""BERT: the experiment's two-stream blocks, and the real encoder."""

from codesign_base import InputError
from codesign_base.arguments import of_python_numbers
from parallelism.graph import ModelGraph
from parallelism.operators.builder import GraphBuilder
from parallelism.operators.elementwise import add
from parallelism.operators.layers import attention, dense, embedding, layer_norm
from parallelism.operators.shapes import check_counts


@of_python_numbers
def bert(
    *,
    blocks: int = 12,
    sequence: int = 64,
    hidden: int = 1024,
    heads: int = 16,
    batch_per_gpu: int = 16,
    element_bytes: int = 4,
    name: str = "bert",
) -> ModelGraph:
    """Build the transformer that the TopoOpt experiments call BERT.

    A block works on two streams. Stream 1: ``t1 = x1 + attention(x1)``, then two dense layers.
    Stream 2: ``t2 = x2 + attention(x2)``, ``t2 = t2 + attention(t2, t1, t1)``, then two dense
    layers. All layers are ``hidden -> hidden``; attention has no biases; a dense layer
    ``hidden -> 1`` ends stream 2.

    Parameters
    ----------
    blocks, sequence, hidden, heads : int
    batch_per_gpu, element_bytes : int
    name : str
        Name of the graph.

    Returns
    -------
    ModelGraph
        ``10 * blocks + 1`` operators.

    Raises
    ------
    InputError
        If a number is below 1, or the heads do not divide the hidden width.

    References
    ----------
    .. [1] Wang et al., TopoOpt, NSDI 2023, section 5.1 (BERT workload), and its published
       simulator and task graphs. See `bert_encoder` for the BERT of Devlin et al.
    """
    check_counts(f"model {name!r}", blocks=blocks, sequence=sequence, hidden=hidden, heads=heads)
    build = GraphBuilder(name, batch_per_gpu, element_bytes)
    first = build.input(sequence, hidden)
    second = build.input(sequence, hidden)
    for block in range(blocks):
        prefix = f"block_{block}"
        x = attention(build, f"{prefix}_first_attention", first, heads=heads)
        x = add(build, f"{prefix}_first_add", [first, x])
        x = dense(build, f"{prefix}_first_dense_0", x, hidden)
        first = dense(build, f"{prefix}_first_dense_1", x, hidden)
        x = attention(build, f"{prefix}_second_attention", second, heads=heads)
        second = add(build, f"{prefix}_second_add", [second, x])
        x = attention(build, f"{prefix}_cross_attention", second, first, heads=heads)
        x = add(build, f"{prefix}_cross_add", [second, x])
        x = dense(build, f"{prefix}_second_dense_0", x, hidden)
        second = dense(build, f"{prefix}_second_dense_1", x, hidden)
    dense(build, "output", second, 1)
    return build.build()


@of_python_numbers
def bert_encoder(
    *,
    blocks: int = 12,
    sequence: int = 512,
    hidden: int = 768,
    heads: int = 12,
    feed_forward: int | None = None,
    vocabulary: int = 30522,
    positions: int = 512,
    token_types: int = 2,
    batch_per_gpu: int = 16,
    element_bytes: int = 4,
    name: str = "bert-base",
) -> ModelGraph:
    """Build the encoder of BERT with embeddings and pooler, without a task head.

    Parameters
    ----------
    blocks, sequence, hidden, heads : int
    feed_forward : int, optional
        Inner width of the feed-forward layers; ``4 * hidden`` by default.
    vocabulary, positions, token_types : int
        Rows of the three embedding tables.
    batch_per_gpu, element_bytes : int
    name : str
        Name of the graph.

    Returns
    -------
    ModelGraph

    Raises
    ------
    InputError
        If a number is below 1, the heads do not divide the hidden width, or the sequence is
        longer than the position table.

    References
    ----------
    .. [1] Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers, NAACL 2019,
       section 3 (post-layer-norm blocks).
    """
    where = f"model {name!r}"
    check_counts(where, blocks=blocks, hidden=hidden, heads=heads)
    inner = 4 * hidden if feed_forward is None else feed_forward
    check_counts(where, feed_forward=inner)
    check_counts(where, vocabulary=vocabulary, positions=positions, token_types=token_types)
    check_counts(where, sequence=sequence)
    if sequence > positions:
        raise InputError(
            f"{where}: sequence {sequence} is longer than the position table of {positions}; "
            "give a shorter sequence or more positions"
        )
    build = GraphBuilder(name, batch_per_gpu, element_bytes)
    tables = (("word", vocabulary), ("position", positions), ("token_type", token_types))
    embedded = [
        embedding(build, f"{kind}_embedding", rows, hidden, positions=sequence)
        for kind, rows in tables
    ]
    x = add(build, "embedding_add", embedded)
    x = layer_norm(build, "embedding_norm", x)
    for block in range(blocks):
        prefix = f"block_{block}"
        y = attention(build, f"{prefix}_attention", x, heads=heads, bias=True)
        x = add(build, f"{prefix}_attention_add", [x, y])
        x = layer_norm(build, f"{prefix}_attention_norm", x)
        y = dense(build, f"{prefix}_expand", x, inner)
        y = dense(build, f"{prefix}_contract", y, hidden)
        x = add(build, f"{prefix}_dense_add", [x, y])
        x = layer_norm(build, f"{prefix}_dense_norm", x)
    dense(build, "pooler", x, hidden, first_only=True)
    return build.build()
