"""What depends on the training software rather than on model or layout: a stack."""

from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

from codesign_base import InputError
from codesign_base.arguments import check_flags, check_kind, is_number, python_numbers
from codesign_base.hashed_once import hashed_once
from parallelism.suggestions import suggestion

Selective = Literal["core", "products"]
Arithmetic = Literal["bf16", "fp8"]
AttentionKernel = Literal["cudnn", "flash-2", "triton"]
FUSED_LOSS = 2.0
"""Bytes of each logit where a fused kernel computes the loss."""
# More than any factor of a stack, and little enough for sums of them.
_MOST_TIMES = 1e6


@hashed_once
@dataclass(frozen=True)
class Implementation:
    """Kernels, precisions, overlaps and memory of a stack of training software.

    Parameters
    ----------
    stack : str
        Its name; a key of `STACKS` if the other fields are that stack's.
    flash : bool
        One fused attention kernel, which stores no scores and skips what a causal mask hides.
        Otherwise scores are written to memory, all of them (Megatron-LM until 2022).
    dropout : bool
        Dropout after attention scores, attention and feed-forward part, whose masks are kept.
    load_imbalance : float
        Tokens of the busiest expert rank over the mean, at least 1.
    gradient_bytes : int
        Bytes of a summed gradient element, kept and sent: 4 (Megatron-LM) or 2 (the ZeRO paper).
    optimizer_bytes : int
        Bytes a parameter of optimizer state: 12 are Adam's two moments and the FP32 copy.
    scatter_gather : bool
        Each tensor rank sends its own part of a stage's output (Narayanan et al., 2021,
        section 4.1), rather than all of it. Sequence parallelism implies it.
    fused_gradients : bool
        Weight gradients are added to their FP32 sum inside the product. Otherwise a kernel of
        its own reads gradient and sum and writes the sum, every microbatch.
    gathered_inputs : bool
        With sequence parallelism, inputs gathered over a tensor group are kept for the backward
        pass (PyTorch's DTensor), rather than gathered again (Megatron).
    selective : {"core", "products"}
        What selective recomputation does again: attention cores (Korthikanti et al., 2022), or
        every second product and all element-wise work (torchtitan). With the latter, PyTorch's
        checkpoints, full recomputation ends where the backward pass needs no more: it leaves out
        the last product of a dense layer, and what experts send back.
    overlap_tensor, overlap_data, overlap_context, overlap_expert, overlap_pipeline : float
        Fractions of the communication of each kind that hide behind computing, as far as there
        is any at the time, 0 to 1. Of messages between stages the rest occupies the stage that
        gets them.
    sending : float
        Share of the seconds of a hidden message that computing beside it loses to the
        multiprocessors that send it, 0 to 1; of messages between stages none is counted.
    kernels : float
        Share of the rates of products (`gpu.GpuRates`) that its kernels reach, up to 1.
    attention : {"cudnn", "flash-2", "triton"}
        Its kernel of fused attention: cuDNN 9 or FlashAttention 3, which use what Hopper brought;
        FlashAttention 2; the first FlashAttention in Triton. `gpu.GpuRates` has their rates.
    elementwise, norms : float
        Bytes that element-wise work, and norms, move, over those of fused kernels.
    collective_s : float
        Seconds that each message of a tensor group holds up the rank beside its bytes.
    bucketing : float
        Share of the links' rates that sums of gradients and gathers of weights reach: small
        buckets do not fill them.
    copies : float
        Bytes that an element is moved in memory to be gathered or scattered, into and out of flat
        buffers: of sharded weights and gradients, and over a tensor group with ``gathered_inputs``.
    casts : float
        Bytes that casts of activations and their gradients to FP8 move, over those of one kernel
        at the rate of others that reads an element once and writes it twice.
    iteration_s : float
        Seconds of each iteration that are spent neither in passes nor in messages: data,
        synchronisation of all ranks, logging.
    logit_bytes : float
        Bytes of each logit at the worst moment of the loss: 2 of a fused kernel, which reads
        logits as they are and puts their gradient in their place, otherwise at least the 4 of FP32.
    gathered_logits : bool
        Each tensor rank computes the loss of all logits, rather than of its share.
    norm_bytes : float
        Bytes that each norm keeps of an element beside its input.
    held : float
        Bytes that activations and buffers take, over those of fused kernels: what eager kernels
        keep besides, and what the allocator holds and cannot use.
    runtime_bytes : float
        Bytes that the runtime keeps: context of the GPU, buffers of communication and products.
    forwarded_tokens : bool
        A token goes once to each server that holds experts of it, and is forwarded inside, once
        to each rank (DeepSeek-V3, section 3.2.2; DeepEP), rather than once for each expert;
        outputs are weighted and summed before they come back.
    fp8_dispatch : bool
        With FP8 products, tokens go to experts, and gradients of what comes back, in FP8 with a
        scale of 4 bytes for 128 elements; what comes back, and its like, is in BF16.
    fp8_gather : bool
        With FP8 products, inputs and output gradients that a tensor group gathers for them are
        cast before and sent in FP8; each rank then transposes all of them (Transformer Engine).
        What comes to an expert that is split is gathered before it is cast.
    fp8_scatter : bool
        With FP8 products, outputs that a tensor group sums in the forward pass are sent in FP8
        (``fp8_buf`` of Transformer Engine's user buffers).
    fp8_weights : bool
        With FP8 products, data-parallel ranks gather updated weights in FP8 (``fp8_params``).
    delayed_scaling : bool
        With FP8 products, scales follow from the greatest elements of passes before, on which all
        ranks of a stage agree after each pass of a part (`iteration.scale_seconds`).
    dispatch_s : float
        Seconds that the forward pass of each layer with experts on several ranks waits until all
        know what they get.
    precision : {"bf16", "fp8"}
        Of the products inside layers, forward and backward. Weights in FP8 and transposed take
        the bytes of those in BF16; sums of gradients and states of the optimizer stay as they are.
    """

    stack: str = "megatron-core"
    flash: bool = True
    dropout: bool = False
    load_imbalance: float = 1.0
    gradient_bytes: int = 4
    optimizer_bytes: int = 12
    scatter_gather: bool = True
    fused_gradients: bool = True
    gathered_inputs: bool = False
    selective: Selective = "core"
    overlap_tensor: float = 0.7
    overlap_data: float = 1.0
    overlap_context: float = 1.0
    overlap_expert: float = 0.0
    overlap_pipeline: float = 1.0
    sending: float = 0.0
    kernels: float = 1.0
    attention: AttentionKernel = "cudnn"
    elementwise: float = 1.0
    norms: float = 1.0
    collective_s: float = 0.0
    bucketing: float = 1.0
    copies: float = 4.0
    casts: float = 1.0
    iteration_s: float = 0.1
    logit_bytes: float = 8.0
    gathered_logits: bool = False
    norm_bytes: float = 0.0
    held: float = 1.1
    runtime_bytes: float = 3e9
    precision: Arithmetic = "bf16"
    forwarded_tokens: bool = False
    fp8_dispatch: bool = False
    fp8_gather: bool = False
    fp8_scatter: bool = False
    fp8_weights: bool = False
    delayed_scaling: bool = False
    dispatch_s: float = 0.0

    def __post_init__(self) -> None:
        python_numbers(self)

        def refuse(name: str, remedy: str) -> InputError:
            value = getattr(self, name)
            return InputError(f"implementation: {name} is {value!r}; give {remedy}")

        check_kind("implementation: stack", self.stack, str, "a name")
        check_flags("implementation", self)
        for each in fields(self):
            if is_number(each.default) and not is_number(getattr(self, each.name)):
                raise refuse(each.name, "a number")
        for name in ("tensor", "data", "context", "expert", "pipeline"):
            if not 0.0 <= getattr(self, f"overlap_{name}") <= 1.0:
                raise refuse(f"overlap_{name}", "0 to 1")
        if not 0.0 <= self.sending <= 1.0:
            raise refuse("sending", "0 to 1")
        for name in ("load_imbalance", "elementwise", "norms", "casts", "held"):
            if not 1.0 <= getattr(self, name) <= _MOST_TIMES:
                raise refuse(name, f"1 to {_MOST_TIMES:g}")
        for name in (
            "optimizer_bytes", "collective_s", "copies", "iteration_s", "norm_bytes",
            "runtime_bytes", "dispatch_s",
        ):  # fmt: skip
            if not 0.0 <= getattr(self, name) < float("inf"):
                raise refuse(name, "0 or more")
        for name in ("kernels", "bucketing"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise refuse(name, "a share above 0 and at most 1")
        if self.logit_bytes != FUSED_LOSS and not 4.0 <= self.logit_bytes < float("inf"):
            raise refuse("logit_bytes", "2, or at least 4")
        if self.gradient_bytes not in (2, 4):
            raise refuse("gradient_bytes", "2 or 4")
        if self.selective not in get_args(Selective):
            raise refuse("selective", "core or products")
        if self.precision not in get_args(Arithmetic):
            raise refuse("precision", "bf16 or fp8")
        if self.attention not in get_args(AttentionKernel):
            raise refuse("attention", ", ".join(get_args(AttentionKernel)))

    def hidden(self, group: Literal["tensor", "data", "context", "expert"]) -> float:
        """Return the share of the seconds of a group's messages that cost no computing."""
        overlap: float = getattr(self, f"overlap_{group}")
        return overlap * (1.0 - self.sending)


MEGATRON_CORE = Implementation()
"""Megatron-Core and NeMo."""

NEMO = replace(
    MEGATRON_CORE, stack="nemo", gradient_bytes=2, overlap_tensor=1.0, sending=0.18, casts=2.8,
    iteration_s=0.0, fp8_gather=True, fp8_weights=True, delayed_scaling=True,
)  # fmt: skip
"""NeMo's own recipes: gradients are summed in BF16 (``grad_sync_dtype``), messages of tensor groups
cut to each product by hand (user buffers of Transformer Engine), weights are kept and gathered in
FP8 where products are, whose scales are delayed (``fp8_params``, ``reduce_amax``), and times are of
steps without loading of data and logging."""

MEGATRON_2022 = Implementation(
    "megatron-2022", flash=False, dropout=True,
    overlap_tensor=0.0, overlap_data=0.0, overlap_pipeline=0.0, iteration_s=0.0,
)  # fmt: skip
"""Megatron-LM as Korthikanti et al. (2022) ran it."""

MEGATRON_2021 = replace(MEGATRON_2022, stack="megatron-2021", fused_gradients=False)
"""Megatron-LM as Narayanan et al. (2021) ran it: gradients were summed by a kernel of its own."""

LLAMA3 = replace(MEGATRON_CORE, stack="llama3", overlap_tensor=0.0, iteration_s=0.0)
"""Meta's own, of The Llama 3 Herd of Models (2024)."""

DEEPSPEED_2022 = replace(MEGATRON_2021, stack="deepspeed-2022", kernels=0.79)
"""Megatron-LM's layers on DeepSpeed's pipeline, as Smith et al. (2022) ran MT-NLG."""

ALEPH_ALPHA_2023 = Implementation(
    "aleph-alpha-2023", gradient_bytes=2, scatter_gather=False,
    overlap_tensor=0.0, overlap_data=0.0, overlap_pipeline=0.0,
    kernels=0.94, norms=8.0, collective_s=193e-6, bucketing=0.318, iteration_s=0.0,
    logit_bytes=14.0, gathered_logits=True, held=1.25,
)  # fmt: skip
"""Of Hagemann et al., Efficient Parallelization Layouts (2023), with their RMSNorm kernel."""

FSDP2 = Implementation(
    "fsdp2", gathered_inputs=True, selective="products", overlap_tensor=0.0,
    attention="flash-2", elementwise=1.33, norms=1.33,
)  # fmt: skip
"""PyTorch's per-parameter sharding and DTensor, compiled: torchtitan, dense models of NeMo
AutoModel."""

FSDP2_EAGER = replace(FSDP2, stack="fsdp2-eager", elementwise=3.24, norms=3.24)
"""The same, not compiled: torchtitan without ``torch.compile``."""

MAXTEXT = replace(
    FSDP2, stack="maxtext", attention="cudnn", elementwise=1.0, norms=1.0, copies=0.0,
)  # fmt: skip
"""MaxText on GPUs: XLA fuses element-wise work and gathers into place; set, not fitted."""

FSDP2_MOE = replace(
    FSDP2, stack="fsdp2-moe", attention="cudnn", elementwise=1.0, norms=1.0, optimizer_bytes=4,
    forwarded_tokens=True,
)  # fmt: skip
"""Mixtures of experts of NeMo AutoModel: kernels of Transformer Engine, DeepEP with nothing
beside it, weights and moments of Adam in BF16 without an FP32 copy; nothing of it is fitted."""

FSDP1 = Implementation(
    "fsdp1", gradient_bytes=2, attention="triton", overlap_tensor=0.0, overlap_data=0.64,
    logit_bytes=FUSED_LOSS,
)  # fmt: skip
"""PyTorch's FullyShardedDataParallel as MosaicML's Composer sets it up: the backward pass
gathers a layer's weights only after the one before it is done; the loss is one kernel
(``fused_crossentropy``)."""

DEEPSEEK_V3 = Implementation(
    "deepseek-v3", precision="fp8", optimizer_bytes=8, overlap_expert=1.0, forwarded_tokens=True,
    fp8_dispatch=True, kernels=round(112 / 132, 3),
)  # fmt: skip
"""DeepSeek's own (DeepSeek-V3, 2024, sections 3.2 and 3.3): all-to-all of one half batch beside
the computing of another (DualPipe), moments of Adam in BF16. Of a GPU's 132 multiprocessors 20 do
nothing but exchange tokens (section 3.2.2)."""

MEGATRON_MOE = replace(
    MEGATRON_CORE, stack="megatron-moe", overlap_expert=0.9, forwarded_tokens=True,
    kernels=round(112 / 132, 3),
)  # fmt: skip
"""Megatron-Core with DeepEP, which takes 20 multiprocessors, and overlap of all-to-all with the
other half batch; set, not met with runs."""

MEGATRON_DEEPEP = replace(
    MEGATRON_CORE, stack="megatron-deepep", forwarded_tokens=True, dispatch_s=1.01e-3,
    casts=NEMO.casts,
)  # fmt: skip
"""Megatron-Core with DeepEP or HybridEP, and nothing beside them; set, but ``dispatch_s`` measured:
3.109 s of preparing HybridEP's exchange in 3,072 passes of a layer, Qwen3 30B-A3B on 16 H100
(NVIDIA-NeMo/Megatron-Bridge, skills/nemo-mbridge-perf-moe-comm-overlap, profile of July 2026;
beside the other microbatch it is 0.67 s). Casts to FP8 are Transformer Engine's, as NeMo's runs
have them."""

MEGATRON_OVERLAP = replace(
    MEGATRON_CORE, stack="megatron-overlap", overlap_tensor=0.0, overlap_expert=0.9,
)  # fmt: skip
"""Megatron-Core with NCCL's all-to-all beside the other microbatch, for which tensor groups give
up their overlap; set, not fitted."""

STACKS: dict[str, Implementation] = {
    one.stack: one
    for one in (
        MEGATRON_CORE, NEMO, MEGATRON_DEEPEP, MEGATRON_OVERLAP, MEGATRON_MOE, DEEPSEEK_V3,
        FSDP2, FSDP2_EAGER, FSDP2_MOE, FSDP1, MAXTEXT, LLAMA3,
        MEGATRON_2022, MEGATRON_2021, DEEPSPEED_2022, ALEPH_ALPHA_2023,
    )
}  # fmt: skip
"""Stacks by name, the default first; `docs/llm.md` says what of them is fitted on what."""


def get_stack(
    name: str, *, load_imbalance: float = 1.0, precision: Arithmetic | None = None
) -> Implementation:
    """Return a stack by its name.

    Parameters
    ----------
    name : str
        A key of `STACKS`.
    load_imbalance : float
        Tokens of the busiest expert rank over the mean, which is the job's, not the stack's.
    precision : {"bf16", "fp8"}, optional
        Of products; that of the stack by default.

    Raises
    ------
    InputError
        If there is none of that name, or a value is out of range.

    Examples
    --------
    >>> get_stack("megatron-2022").overlap_tensor
    0.0
    """
    check_kind("stack", name, str, "a name, such as 'nemo'")
    if name not in STACKS:
        raise InputError(f"unknown stack {name!r}; {suggestion(name, list(STACKS))}")
    stack = STACKS[name]
    return replace(
        stack, load_imbalance=load_imbalance,
        precision=stack.precision if precision is None else precision,
    )  # fmt: skip
