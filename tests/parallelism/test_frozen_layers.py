"""Backward passes of captured modules with frozen layers against the FLOPs that PyTorch counts."""

import random

import pytest

from codesign_base import InputError
from parallelism.graph import ModelGraph, OperatorKind

torch = pytest.importorskip("torch", reason="capture needs PyTorch, which is optional")

import torch_modules as zoo  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from topoopt import capture  # noqa: E402

COUNTED = (OperatorKind.DENSE, OperatorKind.CONV2D)


class Branches(nn.Module):
    """Two towers of products and a convolution, which meet; the second one has an adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 8)
        self.left = nn.Sequential(nn.Linear(8, 12), nn.LayerNorm(12), nn.ReLU(), nn.Linear(12, 6))
        self.conv = nn.Conv2d(3, 4, 3)
        self.right = nn.Linear(16, 6, bias=False)
        self.down, self.up = nn.Linear(16, 2, bias=False), nn.Linear(2, 6)
        self.head = nn.Linear(12, 5)

    def forward(self, index, photo):
        x = self.left(self.table(index))
        y = self.conv(photo).flatten(2).mean(-1).repeat(1, 4)
        y = self.right(y) + self.up(self.down(y))
        return self.head(torch.cat((x, y), dim=1))


def backward_flops(graph: ModelGraph) -> float:
    return sum(op.backward_flops for op in graph.operators if op.kind in COUNTED)


def counted_flops(module, *inputs) -> float:
    """Products and convolutions of the backward pass of one sample, as PyTorch runs it."""
    with FlopCounterMode(display=False) as counter:
        out = module(*inputs).sum()
    forward = counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        out.backward()
    assert forward > 0
    return counter.get_total_flops() / len(inputs[0])


@pytest.mark.parametrize("seed", range(24))
def test_backward_passes_are_those_that_pytorch_runs(seed: int) -> None:
    rng = random.Random(seed)
    module = Branches()
    weights = [each for name, each in module.named_parameters() if "bias" not in name]
    frozen = rng.sample(weights, rng.randint(1, len(weights) - 1))
    for each in module.parameters():
        each.requires_grad_(not any(each is one for one in frozen))
    for part in module.modules():  # a layer is frozen as a whole
        if getattr(part, "bias", None) is not None:
            part.bias.requires_grad_(part.weight.requires_grad)
    inputs = torch.zeros(4, dtype=torch.long), torch.zeros(4, 3, 6, 6)
    graph = capture(module, inputs)
    assert graph.parameters == sum(p.numel() for p in module.parameters() if p.requires_grad)
    assert backward_flops(graph) == pytest.approx(counted_flops(module, *inputs))


def test_adapters_on_frozen_layers_leave_out_their_weights_gradients() -> None:
    module = zoo.Llama(2, 64, 4, 2, 96, 500)
    inputs = torch.zeros(2, 16, dtype=torch.long)
    whole = capture(module, inputs)
    module.requires_grad_(False)
    last = module.layers[1].down_proj
    last.weight.requires_grad_(True)
    graph = capture(module, inputs)
    flops = {op.name: op for op in graph.operators}
    full = {op.name: op for op in whole.operators}
    assert flops["layers.1.down_proj"].backward_flops == full["layers.1.down_proj"].forward_flops
    assert flops["lm_head"].backward_flops == full["lm_head"].backward_flops / 2
    assert flops["lm_head"].backward_bytes == full["lm_head"].backward_bytes / 2
    before = graph.index("layers.1.down_proj")
    assert not any(op.backward_flops or op.backward_bytes for op in graph.operators[:before])
    assert graph.parameters == last.weight.numel()


def test_a_module_of_which_nothing_is_trained_is_refused() -> None:
    module, inputs = Branches(), (torch.zeros(2, dtype=torch.long), torch.zeros(2, 3, 8, 8))
    module.requires_grad_(False)
    with pytest.raises(InputError, match="'Branches': requires_grad of every parameter is False"):
        capture(module, inputs)
    module.head.bias.requires_grad_(True)
    assert capture(module, inputs).parameters == 5
    assert capture(nn.Softmax(-1), torch.zeros(2, 4)).parameters == 0  # it has none
