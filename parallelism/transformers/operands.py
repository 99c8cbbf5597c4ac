"""How a stack treats what its products of weights read: bytes, sums, casts to FP8."""

from parallelism.transformers.training import Training


def operands(
    training: Training, *, layer: bool = False
) -> tuple[float, float, bool, bool, tuple[float, float]]:
    """Return how products of weights treat their operands and gradients.

    Of FP8 training only the products inside layers are in FP8: embedding, head and routers stay
    in BF16, as do norms and attention (DeepSeek-V3, 2024, section 3.3.1). Casts are kernels of
    their own in every stack: one whose element-wise work moves more bytes than fused kernels does
    not cast more, but by its ``casts``.
    """
    implementation = training.implementation
    cast = implementation.casts / implementation.elementwise
    return (
        training.element, float(implementation.gradient_bytes), implementation.fused_gradients,
        layer and training.fp8, (cast, cast),
    )  # fmt: skip


def cast_shares(training: Training) -> tuple[float, float]:
    """Return factors of the bytes of casts: of what a rank has whole, and of what it gathers.

    What a tensor group gathers in FP8 each rank reads in BF16 and writes for its own tokens, and
    reads and writes transposed for all.
    """
    layout, implementation = training.layout, training.implementation
    cast = implementation.casts / implementation.elementwise
    if layout.tensor == 1 or not (layout.sequence_parallel and implementation.fp8_gather):
        return cast, cast
    return cast, cast * (3.0 / layout.tensor + 2.0) / 4.0
