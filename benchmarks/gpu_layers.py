"""Layers and heads of language models on one GPU, beside the time that plans give them.

Run by hand where PyTorch finds a GPU: ``python benchmarks/gpu_layers.py --device h100``. Each case
runs for some seconds, so that clocks settle as they do in training. `docs/llm.md` has a table.
"""

import argparse
import json
import statistics
import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from parallelism.transformers.architecture import Transformer
from parallelism.transformers.attention import Attention
from parallelism.transformers.costs import layer_costs
from parallelism.transformers.end_costs import head_costs
from parallelism.transformers.gpu import rates_of
from parallelism.transformers.implementation import FSDP2, FSDP2_EAGER
from parallelism.transformers.layout import Layout
from parallelism.transformers.pass_seconds import stack_seconds
from parallelism.transformers.training import Training

# Name, hidden and feed-forward width, heads, key heads, width of a head, tokens, samples.
CASES = (
    ("Llama 3 8B", 4096, 14336, 32, 8, 128, 8192, 1),
    ("Llama 3 8B", 4096, 14336, 32, 8, 128, 2048, 1),
    ("Llama 3 8B", 4096, 14336, 32, 8, 128, 32768, 1),
    ("Llama 3 70B", 8192, 28672, 64, 8, 128, 8192, 1),
    ("Llama 3 70B, a quarter", 8192, 7168, 16, 2, 128, 8192, 1),
    ("Llama 3 70B, an eighth", 8192, 3584, 8, 1, 128, 8192, 1),
    ("Llama 2 13B", 5120, 13824, 40, 40, 128, 4096, 2),
    ("Llama 3.2 1B", 2048, 8192, 32, 8, 64, 4096, 2),
)
# Name, hidden width, words, tokens.
HEADS = (("Llama 3 8B", 4096, 128256, 8192), ("Llama 2 13B", 5120, 32000, 8192))
KERNELS = {"flash-2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


class Layer(torch.nn.Module):
    """Attention with rotated, grouped heads and a gated feed-forward part."""

    def __init__(self, hidden, ffn, heads, kv_heads, width):
        super().__init__()
        self.sizes = heads, kv_heads, width
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(hidden, eps=1e-5) for _ in range(2))
        linear = torch.nn.Linear
        self.query = linear(hidden, heads * width, bias=False)
        self.key = linear(hidden, kv_heads * width, bias=False)
        self.value = linear(hidden, kv_heads * width, bias=False)
        self.out = linear(heads * width, hidden, bias=False)
        self.gate, self.up = (linear(hidden, ffn, bias=False) for _ in range(2))
        self.down = linear(ffn, hidden, bias=False)

    def forward(self, x, cosine, sine):
        heads, kv_heads, width = self.sizes
        batch, tokens, _ = x.shape

        def split(y, number):
            return y.view(batch, tokens, number, width).transpose(1, 2)

        def rotate(y):
            a, b = y.float().chunk(2, -1)
            return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1).to(y.dtype)

        y = self.norms[0](x)
        q, k = rotate(split(self.query(y), heads)), rotate(split(self.key(y), kv_heads))
        v = split(self.value(y), kv_heads)
        k, v = (z.repeat_interleave(heads // kv_heads, 1) for z in (k, v))
        core = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(core.transpose(1, 2).reshape(batch, tokens, heads * width))
        y = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Head(torch.nn.Module):
    """Norm, output projection and loss."""

    def __init__(self, hidden, words):
        super().__init__()
        self.norm = torch.nn.RMSNorm(hidden, eps=1e-5)
        self.words = torch.nn.Linear(hidden, words, bias=False)

    def forward(self, x, labels):
        return functional.cross_entropy(self.words(self.norm(x)).float(), labels)


def seconds_of(module, arguments, least_seconds):
    """Return the median seconds of a forward pass, and of one with its backward pass."""
    gradient = None

    def step():
        nonlocal gradient
        for tensor in (*module.parameters(), arguments[0]):
            tensor.grad = None
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        marks[0].record()
        out = module(*arguments)
        marks[1].record()
        gradient = torch.ones_like(out) if gradient is None else gradient
        out.backward(gradient)
        marks[2].record()
        return marks

    for _ in range(3):
        marks = step()
    torch.cuda.synchronize()
    number = max(5, int(least_seconds / (marks[0].elapsed_time(marks[2]) * 1e-3)))
    steps = [step() for _ in range(number)]
    torch.cuda.synchronize()
    # The clocks of the first half may still fall.
    steps = steps[number // 2 :]
    return tuple(
        statistics.median(marks[0].elapsed_time(marks[at]) for marks in steps) * 1e-3
        for at in (1, 2)
    )


def modelled(costs, rates, stack):
    """Return the seconds of the same passes by the model."""
    works = (costs.forward, costs.backward_input, costs.backward_weight)
    parts = [stack_seconds(work, rates, stack) for work in works]
    return parts[0], sum(parts)


def rows(device, least_seconds):
    """Yield one row for each case, kernel and way to run it."""
    rates = rates_of(device)
    for compiled in (True, False):
        stack = FSDP2 if compiled else FSDP2_EAGER
        fused = replace(stack, elementwise=1.0, norms=1.0)
        for name, hidden, ffn, heads, kv_heads, width, tokens, samples in CASES:
            model = Transformer(
                name, 1, hidden, Attention(heads, kv_heads, width), ffn, 1024, tokens, gated=True
            )
            layer = Layer(hidden, ffn, heads, kv_heads, width).to("cuda", torch.bfloat16)
            x = torch.randn(samples, tokens, hidden, device="cuda", dtype=torch.bfloat16)
            angles = torch.rand(tokens, width // 2, device="cuda")
            arguments = x.requires_grad_(), angles.cos(), angles.sin()
            for kernel, backend in KERNELS.items():
                if compiled and kernel != "flash-2":
                    continue  # torch.compile does not heed the context, and takes FlashAttention 2.
                torch.compiler.reset()
                with sdpa_kernel(backend):
                    run = torch.compile(layer) if compiled else layer
                    measured = seconds_of(run, arguments, least_seconds)
                training = Training(model, Layout(microbatch=samples), stack, tokens)
                costs = layer_costs(training, 0)
                yield row(
                    (name, tokens, samples, kernel, compiled), measured,
                    modelled(costs, rates, replace(stack, attention=kernel)),
                    modelled(costs, rates, replace(fused, attention=kernel)),
                )  # fmt: skip
            del layer, x, arguments
        for name, hidden, words, tokens in HEADS:
            model = Transformer(name, 1, hidden, Attention(1, 1, 128), 1, words, tokens)
            head = Head(hidden, words).to("cuda", torch.bfloat16)
            x = torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16)
            arguments = x.requires_grad_(), torch.randint(words, (tokens,), device="cuda")
            run = torch.compile(head) if compiled else head
            measured = seconds_of(run, arguments, least_seconds)
            costs = head_costs(Training(model, Layout(), stack, tokens))
            yield row(
                (f"{name}, head", tokens, 1, "", compiled), measured,
                modelled(costs, rates, stack), modelled(costs, rates, fused),
            )  # fmt: skip
            del head, x, arguments


def row(case, measured, by_stack, by_fused):
    """Return one row, and print it."""
    name, tokens, samples, kernel, compiled = case
    found = {
        "name": name, "tokens": tokens, "samples": samples, "kernel": kernel, "compiled": compiled,
        "forward_s": measured[0], "step_s": measured[1],
        "model_forward_s": by_stack[0], "model_step_s": by_stack[1],
        "fused_forward_s": by_fused[0], "fused_step_s": by_fused[1],
    }  # fmt: skip
    print(
        f"{name:24} {samples} x {tokens:5} {kernel:8} {'compiled' if compiled else 'eager':8} "
        f"{measured[0] * 1e3:8.3f} {measured[1] * 1e3:8.3f} ms, model {by_stack[1] * 1e3:8.3f} ms "
        f"({by_stack[1] / measured[1] - 1:+6.1%}), all fused {by_fused[1] * 1e3:8.3f} ms "
        f"({by_fused[1] / measured[1] - 1:+6.1%})",
        flush=True,
    )
    return found


def main():
    """Run all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="h100", help="the accelerator, as plans name it")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each case, at least")
    parser.add_argument("--output", "-o", help="write the rows (JSON)")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("gpu_layers: torch finds no GPU")
    found = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": []}
    for one in rows(options.device, options.seconds):
        found["rows"].append(one)
        if options.output:
            Path(options.output).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
