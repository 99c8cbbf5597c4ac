"""What one GPU does in one pass: matrix products, fused attention, and bytes that are moved."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Gemm:
    """One shape of matrix product, ``(m, k) times (k, n)``, done ``count`` times.

    Parameters
    ----------
    m, n, k : float
        Mean sizes; not always whole where tokens are spread over experts.
    count : float
        Products of this shape, each of its own operands.
    output_bytes : float
        Bytes moved for each element of the result: 2 writes a 2-byte element, 8 reads a 4-byte
        sum, adds to it and writes it back.
    operand_bytes : float
        Bytes of an element of the operands.
    fp8 : bool
        Done at the FP8 peak, on operands of one byte.
    """

    m: float
    n: float
    k: float
    count: float = 1.0
    output_bytes: float = 2.0
    operand_bytes: float = 2.0
    fp8: bool = False

    @property
    def flops(self) -> float:
        """Floating-point operations, a multiplication and an addition each."""
        return 2.0 * self.m * self.n * self.k * self.count

    @property
    def traffic(self) -> float:
        """Bytes, where each operand is read once and each result moved once."""
        read = self.operand_bytes * self.k * (self.m + self.n)
        return self.count * (read + self.output_bytes * self.m * self.n)


@dataclass(frozen=True, slots=True)
class Work:
    """What one GPU does in one pass of one microbatch.

    Parameters
    ----------
    gemms : tuple of Gemm
    attention_flops : float
        Operations inside fused attention kernels, as the hardware does them (a causal kernel
        skips the half of the scores that is masked).
    attention_traffic : float
        Bytes that these kernels move.
    linear_flops, linear_traffic : float
        The same of kernels of linear attention, which run apart from those.
    traffic : float
        Bytes of element-wise operations.
    kernels : int
        Element-wise and attention kernels (products are kernels of their own).
    """

    gemms: tuple[Gemm, ...] = ()
    attention_flops: float = 0.0
    attention_traffic: float = 0.0
    traffic: float = 0.0
    kernels: int = 0
    linear_flops: float = 0.0
    linear_traffic: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        """Do both."""
        return Work(
            self.gemms + other.gemms,
            self.attention_flops + other.attention_flops,
            self.attention_traffic + other.attention_traffic,
            self.traffic + other.traffic,
            self.kernels + other.kernels,
            self.linear_flops + other.linear_flops,
            self.linear_traffic + other.linear_traffic,
        )

    def every_second_product(self) -> "Work":
        """Return half of the products of each shape, and all element-wise work."""
        return replace(self, gemms=tuple(replace(g, count=g.count / 2) for g in self.gemms))

    @property
    def flops(self) -> float:
        """Operations of products and of attention."""
        return sum(g.flops for g in self.gemms) + self.attention_flops + self.linear_flops


NOTHING = Work()


@dataclass(frozen=True, slots=True)
class PassCosts:
    """The passes of one part of a model over one microbatch on one GPU.

    Parameters
    ----------
    forward : Work
    recompute : Work
        What of the forward pass is done again, directly before ``backward_input``.
    backward_input : Work
        Gradients of activations (B), which the stage before waits for.
    backward_weight : Work
        Gradients of weights (W), which only the optimizer waits for.
    """

    forward: Work = NOTHING
    recompute: Work = NOTHING
    backward_input: Work = NOTHING
    backward_weight: Work = NOTHING

    def __add__(self, other: "PassCosts") -> "PassCosts":
        """Run both."""
        return PassCosts(
            self.forward + other.forward,
            self.recompute + other.recompute,
            self.backward_input + other.backward_input,
            self.backward_weight + other.backward_weight,
        )

    def recomputed(self, again: Work) -> "PassCosts":
        """Return the same passes with something done again before the backward pass."""
        return replace(self, recompute=again)

    @property
    def passes(self) -> tuple[Work, Work, Work, Work]:
        """Forward, recomputation, backward for inputs, backward for weights."""
        return self.forward, self.recompute, self.backward_input, self.backward_weight

    @property
    def flops(self) -> float:
        """Operations of all passes, as the hardware does them."""
        return sum(work.flops for work in self.passes)


def product_costs(
    m: float,
    n: float,
    k: float,
    count: float = 1.0,
    element: float = 2.0,
    summed: float = 4.0,
    fused: bool = True,
    fp8: bool = False,
    casts: tuple[float, float] = (1.0, 1.0),
) -> PassCosts:
    """Return the passes of a product of activations ``(m, k)`` and weights ``(k, n)``.

    Parameters
    ----------
    m, n, k, count : float
        As in `Gemm`.
    element : float
        Bytes of an activation or weight.
    summed : float
        Bytes of an element of the buffer that weight gradients are added to.
    fused : bool
        They are added inside the product; otherwise by a kernel of its own.
    fp8 : bool
        All three products take FP8 operands. Input and output gradient are cast by a kernel
        each, which reads ``element`` bytes and writes one twice: as it lies, and transposed for
        the product that sums over tokens. (Weights are cast once an iteration,
        `iteration.optimizer_seconds`.)
    casts : tuple of float
        Factors of the bytes of these casts: of the input, and of the output gradient.

    Returns
    -------
    PassCosts
        Without recomputation.
    """
    if fp8:
        made = _fp8_product(m, n, k, count, 2.0 * summed if fused else element)
        moved = (element + 2.0) * m * count
        made += elementwise(casts[0] * moved * k, casts[1] * moved * n)
        summing = Work(traffic=(element + 2.0 * summed) * k * n * count, kernels=1)
        return made if fused else made + PassCosts(backward_weight=summing)
    if fused:
        weight = Work((Gemm(k, n, m, count, 2.0 * summed, element),))
    else:
        added = (element + 2.0 * summed) * k * n * count
        weight = Work((Gemm(k, n, m, count, element, element),), traffic=added, kernels=1)
    return PassCosts(
        forward=Work((Gemm(m, n, k, count, element, element),)),
        backward_input=Work((Gemm(m, k, n, count, element, element),)),
        backward_weight=weight,
    )


def _fp8_product(m: float, n: float, k: float, count: float, summed: float) -> PassCosts:
    """Return the three products on operands of one byte, with results of two."""
    return PassCosts(
        forward=Work((Gemm(m, n, k, count, 2.0, 1.0, True),)),
        backward_input=Work((Gemm(m, k, n, count, 2.0, 1.0, True),)),
        backward_weight=Work((Gemm(k, n, m, count, summed, 1.0, True),)),
    )


def elementwise(forward: float, backward: float, kernels: int = 1) -> PassCosts:
    """Return the passes of element-wise operations that move these bytes."""
    return PassCosts(
        forward=Work(traffic=forward, kernels=kernels),
        backward_input=Work(traffic=backward, kernels=kernels),
    )
