"""Captured modules against the presets of the same networks, closed forms and refusals."""

import math
import sys

import pytest

from codesign_base import InputError
from parallelism.graph import Mode, ModelGraph, OperatorKind
from parallelism.models import get_model
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.attention import Attention
from parallelism.transformers.operators import model_graph
from topoopt.problem.options import SearchOptions

torch = pytest.importorskip("torch", reason="capture needs PyTorch, which is optional")

import torch_modules as zoo  # noqa: E402
from torch import nn  # noqa: E402

from topoopt import capture  # noqa: E402


def on_meta(make, *arguments, **named):
    with torch.device("meta"):
        return make(*arguments, **named)


def tokens(batch: int, length: int):
    return torch.zeros(batch, length, dtype=torch.long, device="meta")


def forward(graph: ModelGraph) -> float:
    return sum(op.forward_flops for op in graph.operators)


def operator(graph: ModelGraph, name: str):
    return graph.operators[graph.index(name)]


def splits(graph: ModelGraph, name: str) -> dict[Mode, int]:
    return {split.mode: split.extent for split in operator(graph, name).splits}


def agree(captured: ModelGraph, preset: ModelGraph) -> None:
    assert captured.parameters == preset.parameters
    assert forward(captured) == pytest.approx(forward(preset), rel=0.01)
    backward = sum(op.backward_flops for op in preset.operators)
    assert sum(op.backward_flops for op in captured.operators) == pytest.approx(backward, rel=0.01)


def test_resnet50_is_the_preset() -> None:
    graph = capture(on_meta(zoo.ResNet50), torch.zeros(4, 3, 224, 224), name="resnet")
    agree(graph, get_model("resnet50-imagenet"))
    assert graph.batch_per_gpu == 4
    assert graph.element_bytes == 4
    assert sum(op.kind is OperatorKind.CONV2D for op in graph.operators) == 53
    # The rectifier after a norm is fused, the one after the addition is in it.
    assert not any(op.kind is OperatorKind.ACTIVATION for op in graph.operators)
    assert splits(graph, "blocks.0.conv2") == {Mode.OUTPUT: 64}
    assert operator(graph, "blocks.0.conv2").output_shape == (64, 56, 56)
    assert splits(graph, "blocks.0.bn2") == {Mode.CHANNEL: 64}


def test_vgg16_is_the_preset() -> None:
    graph = capture(on_meta(zoo.VGG16), torch.zeros(1, 3, 224, 224))
    preset = get_model("vgg16-imagenet")
    agree(graph, preset)
    kinds = (OperatorKind.CONV2D, OperatorKind.DENSE, OperatorKind.POOL)
    ours = [op for op in graph.operators if op.kind in kinds]
    theirs = [op for op in preset.operators if op.kind in kinds]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.output_shape == other.output_shape
        assert mine.forward_flops == other.forward_flops
        assert mine.parameters == other.parameters
        # The module ends before the softmax, so nothing would add the last layer's partial sums.
        last = mine is ours[-1]
        assert mine.splits == (other.splits[:1] if last else other.splits)
        assert mine.profile_key == other.profile_key


def test_bert_base_is_the_preset() -> None:
    graph = capture(on_meta(zoo.Bert), (tokens(2, 512), tokens(2, 512)))
    agree(graph, get_model("bert-base"))
    core = next(op for op in graph.operators if op.kind is OperatorKind.ATTENTION)
    assert [(split.mode, split.extent) for split in core.splits] == [(Mode.CHANNEL, 12)]


def test_gpt2_is_the_preset_with_its_tied_embedding_counted_once() -> None:
    graph = capture(on_meta(zoo.GPT2), (tokens(2, 1024), tokens(2, 1024)), element_bytes=2)
    preset = get_model("gpt2")
    agree(graph, preset)
    assert operator(graph, "wte").parameters == 0
    assert operator(graph, "lm_head").parameters == 50257 * 768
    assert not operator(graph, "wte").sparse
    # What its lookup cannot be split by, the projection cannot either: they share a table.
    assert splits(graph, "lm_head") == splits(graph, "wte") == {}
    # Learned positions belong to no sample: the addition holds them.
    assert operator(graph, "add").parameters == 1024 * 768


def test_llama_is_the_transformer() -> None:
    module = on_meta(zoo.Llama, 2, 512, 8, 2, 1376, 4000)
    graph = capture(module, tokens(3, 2048), element_bytes=2)
    model = Transformer(
        "llama", 2, 512, Attention(8, 2, 64), 1376, 4000, 2048, gated=True, causal=True
    )
    agree(graph, model_graph(model))
    core = operator(graph, "layers.0.scaled_dot_product_attention")
    assert core.forward_flops == 0.5 * 8 * 2048**2 * (2 * 64 + 2 * 64 + 5)
    assert [(split.mode, split.extent) for split in core.splits] == [(Mode.CHANNEL, 2)]
    assert splits(graph, "layers.1.down_proj") == {Mode.OUTPUT: 512, Mode.REDUCTION: 1376}
    assert operator(graph, "embed_tokens").sparse


@pytest.mark.parametrize("layers", [2, pytest.param(32, marks=pytest.mark.slow)])
def test_llama3_8b_needs_no_weights(layers: int) -> None:
    module = on_meta(zoo.Llama, layers, 4096, 32, 8, 14336, 128256)
    graph = capture(module, tokens(1, 256), element_bytes=2)
    agree(graph, get_model("llama3-8b", sequence=256, layers=layers))
    if layers == 32:
        assert graph.parameters == 8_030_261_248


def test_experts_are_split_by_expert() -> None:
    count, capacity, hidden, width, s = 4, 8, 32, 64, 16
    module = on_meta(zoo.Experts, hidden, width, count, capacity)
    graph = capture(module, torch.zeros(2, s, hidden))
    assert graph.parameters == hidden * count + 2 * count * hidden * width
    products = [op for op in graph.operators if op.kind is OperatorKind.DENSE and op.parameters]
    router, up, down = products
    assert router.forward_flops == 2 * s * hidden * count
    for op in (up, down):
        assert op.forward_flops == 2 * count * capacity * hidden * width
        assert op.parameters == count * hidden * width
        assert [(split.mode, split.extent) for split in op.splits] == [(Mode.CHANNEL, count)]


def test_lookups_in_bags() -> None:
    module = zoo.TiedLookups()
    examples = {
        "dense": torch.zeros(5, 13), "first": tokens(5, 7), "second": tokens(5, 3),
    }  # fmt: skip
    graph = capture(module, examples)
    assert graph.parameters == sum(p.numel() for p in module.parameters())
    table = operator(graph, "first")
    assert table.sparse
    assert table.profile_key == "Embed_1000x16"
    assert table.forward_flops == 6 * 16
    assert splits(graph, "first") == {Mode.OUTPUT: 16, Mode.REDUCTION: 1000}
    assert operator(graph, "cat").output_shape == (48,)
    assert operator(graph, "cat").inputs == (
        graph.index("bottom.0"), graph.index("first"), graph.index("second"),
    )  # fmt: skip


def test_the_module_is_left_as_it_is() -> None:
    module = zoo.TiedLookups().eval()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    capture(module, (torch.zeros(2, 13), tokens(2, 2), tokens(2, 2)))
    assert not module.training
    for name, tensor in module.state_dict().items():
        assert tensor.device.type == "cpu"
        assert torch.equal(tensor, before[name])


class Small(nn.Module):
    """One product, chosen by a lambda over the module and its input."""

    def __init__(self, step):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(6, 4))
        self.frozen = nn.Parameter(torch.zeros(6, 4), requires_grad=False)
        self.kernel = nn.Parameter(torch.zeros(4, 5, 1))
        self.table = torch.zeros(6, 4)
        self.step = step

    def forward(self, x):
        return self.step(self, x)


@pytest.mark.parametrize(
    ("step", "parameters", "flops", "kind"),
    [
        (lambda m, x: x @ m.weight, 24, 2 * 5 * 6 * 4, "dense"),
        (lambda m, x: x @ m.frozen, 0, 2 * 5 * 6 * 4, "dense"),
        (lambda m, x: x @ m.table, 0, 2 * 5 * 6 * 4, "dense"),
        (lambda m, x: torch.einsum("bsi,io->bso", x, m.weight), 24, 2 * 5 * 6 * 4, "dense"),
        (lambda m, x: torch.einsum("bsi,io", x, m.weight), 24, 2 * 5 * 6 * 4, "dense"),
        (lambda m, x: torch.einsum("bsi->bs", x), 0, 5 * 6, "pool"),
        (lambda m, x: x @ x.transpose(1, 2), 0, 2 * 5 * 5 * 6, "dense"),
        (lambda m, x: x.flatten(0, 1) @ m.weight, 24, 2 * 5 * 6 * 4, "dense"),
        (lambda m, x: (x @ m.weight).relu().mul(2), 24, 2 * 5 * 6 * 4, "dense"),
        (lambda m, x: x.permute(1, 0, 2).exp(), 0, 5 * 6, "activation"),
        (lambda m, x: x.softmax(-1), 0, 5 * 5 * 6, "softmax"),
        (lambda m, x: nn.functional.rms_norm(x, (6,)), 0, 4 * 5 * 6, "norm"),
        (lambda m, x: nn.functional.group_norm(x, 5), 0, 8 * 5 * 6, "norm"),
        (lambda m, x: x.mean(), 0, 5 * 6, "pool"),
        (lambda m, x: x + m.weight.sum(), 24, 5 * 6, "activation"),
        (lambda m, x: x.cumsum(1), 0, 5 * 6, "activation"),
        (lambda m, x: nn.functional.conv1d(x, m.kernel), 20, 2 * 4 * 5 * 6, "conv2d"),
    ],
)  # fmt: skip
def test_single_operations(step, parameters: int, flops: float, kind: str) -> None:
    graph = capture(Small(step), torch.zeros(2, 5, 6))
    (op,) = graph.operators
    assert op.parameters == parameters
    assert op.forward_flops == flops
    assert op.kind == kind
    assert math.prod(op.output_shape) == op.output_elements


class Odd(nn.Module):
    """Patches with a class token, weights that are computed, writes in place, chunks."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, 64))
        self.places = nn.Parameter(torch.zeros(1, 17, 64))
        self.patch = nn.Conv2d(3, 64, 8, 8)
        self.mix = nn.utils.parametrizations.weight_norm(nn.Linear(64, 64))
        self.slope, self.head = nn.PReLU(), nn.Linear(64, 10)
        self.register_buffer("mask", torch.ones(17, 17).tril() == 0)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        y = self.mix(x)
        y[:, 0] += 1
        scores = (x @ y.transpose(1, 2)).masked_fill(self.mask, float("-inf")).softmax(-1)
        gate, value = (scores @ self.slope(y)).chunk(2, -1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.head(torch.cat([gate.sigmoid() * value, value], -1)[:, 0])


def test_odd_modules_keep_their_parameters_and_products() -> None:
    module = Odd()
    graph = capture(module, torch.zeros(2, 3, 32, 32))
    assert graph.parameters == sum(p.numel() for p in module.parameters())
    kinds = (OperatorKind.CONV2D, OperatorKind.DENSE)
    products = [op.forward_flops for op in graph.operators if op.kind in kinds]
    scores = 2 * 17 * 17 * 64  # masked by hand, so that all are computed
    assert products == [2 * 16 * 192 * 64, 2 * 17 * 64 * 64, scores, scores, 2 * 64 * 10]
    assert operator(graph, "cat").parameters == 64
    assert operator(graph, "add").parameters == 17 * 64


class Written(nn.Module):
    """Results are written into parts of a tensor: by slices, by views, under autocast."""

    def __init__(self, step):
        super().__init__()
        self.step, self.token = step, nn.Parameter(torch.zeros(6))
        self.a, self.b = nn.Linear(5, 6), nn.Linear(5, 6)
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        return self.head(self.step(self, x).flatten(1))


def by_slices(module, x):
    out = torch.zeros(x.shape[0], 2, 6)
    out[:, 0] = module.a(x)
    out[:, 1] = module.b(x)
    return out


def under_autocast(module, x):
    out = torch.zeros(x.shape[0], 2, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out[:, 0] = module.a(x)
        out[:, 1] = module.b(x)
    return out


def by_views(module, x):
    out = torch.cat((module.a(x), module.a(x)), 1)
    out.view(-1, 2, 6)[:, 1].add_(module.b(x))
    return out


def beside_a_parameter(module, x):
    out = torch.empty(x.shape[0], 2, 6)
    out[:, 0] = module.token
    out[:, 1] = module.a(x)
    return out


@pytest.mark.parametrize(
    ("step", "parameters", "made"),
    [
        (by_slices, 72, {"a", "b"}), (under_autocast, 72, {"a", "b"}),
        (by_views, 72, {"a", "a_2", "b"}), (beside_a_parameter, 42, {"a"}),
    ],
)  # fmt: skip
def test_what_is_written_into_a_part_is_read_with_the_whole(step, parameters, made) -> None:
    graph = capture(Written(step), torch.zeros(4, 5))
    head = graph.index("head")
    assert graph.parameters == parameters + 39
    assert graph.operators[head].forward_flops == 2 * 12 * 3
    (last,) = graph.operators[head].inputs
    assert graph.operators[last].output_elements == 12
    assert graph.operators[last].kind is not OperatorKind.EMBEDDING
    before, waiting = set(), [head]
    while waiting:
        number = waiting.pop()
        before.add(graph.operators[number].name)
        waiting += graph.operators[number].inputs
    assert made <= before


def test_depthwise_convolution_is_split_by_group() -> None:
    graph = capture(nn.Conv2d(8, 8, 3, groups=8), torch.zeros(2, 8, 10, 10))
    assert graph.operators[0].forward_flops == 2 * 9 * 8 * 64
    assert [(s.mode, s.extent) for s in graph.operators[0].splits] == [(Mode.CHANNEL, 8)]


def test_transposed_convolution_counts_its_input() -> None:
    graph = capture(nn.ConvTranspose2d(8, 4, 2, 2), torch.zeros(2, 8, 10, 10))
    assert graph.operators[0].forward_flops == 2 * 100 * 8 * 4 * 4
    assert graph.operators[0].output_shape == (4, 20, 20)


def test_the_batch_is_that_of_the_examples_unless_given() -> None:
    module = nn.Linear(3, 2)
    assert capture(module, torch.zeros(7, 3)).batch_per_gpu == 7
    assert capture(module, torch.zeros(7, 3), batch_per_gpu=64).batch_per_gpu == 64
    assert (
        capture(module, torch.zeros(7, 3)).operators == capture(module, torch.zeros(9, 3)).operators
    )
    assert capture(module.half(), torch.zeros(7, 3).half()).element_bytes == 2


def every_pair(module, x):
    return (x @ x.t()).softmax(-1)


@pytest.mark.parametrize(
    "loss", [nn.MSELoss(), nn.L1Loss(), nn.SmoothL1Loss(), nn.HuberLoss(), nn.BCEWithLogitsLoss()]
)
def test_a_loss_reads_each_sample_once(loss) -> None:
    class Graded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.loss = nn.Linear(6, 5), loss

        def forward(self, x, wanted):
            return self.loss(self.layer(x), wanted)

    graph = capture(Graded(), (torch.zeros(4, 6), torch.zeros(4, 5)))
    last = graph.operators[-1]
    # Outputs, and what they should be; and a number that is written for all of the batch.
    assert (last.forward_flops, last.output_shape) == (10, (1,))
    assert (last.forward_bytes, last.backward_bytes) == (4 * 11, 2 * 4 * 11)


def test_a_layer_that_is_applied_again_shares_its_weights() -> None:
    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.layer = nn.Embedding(20, 6), nn.Linear(6, 6)
            self.norm = nn.LayerNorm(6)

        def forward(self, x):
            x = self.norm(self.layer(self.norm(self.layer(self.table(x)))))
            return x @ self.table.weight.t()

    graph = capture(Again(), tokens(2, 5))
    names = [[graph.operators[index].name for index in group] for group in graph.shared]
    assert names == [["table", "matmul"], ["layer", "layer_2"], ["norm", "norm_2"]]
    assert graph.parameters == 20 * 6 + 6 * 7 + 2 * 6


def test_weights_that_are_used_both_ways_are_not_split() -> None:
    # Columns of the weights are rows of their transpose.
    graph = capture(Small(lambda m, x: torch.relu(x @ m.weight) @ m.weight.t()), torch.zeros(4, 6))
    assert graph.shared == ((0, 1),)
    assert [op.splits for op in graph.operators] == [(), ()]


def test_a_mean_over_the_batch_is_read_sample_by_sample() -> None:
    graph = capture(Small(lambda m, x: (x.mean(0) ** 2).sum()), torch.zeros(4, 50))
    assert [op.forward_bytes for op in graph.operators] == [4 * (50 + 50), 4 * (50 + 1)]


def data_dependent(module, x):
    return x[x.sum((1, 2)) > 0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: capture("net", torch.zeros(1)), "torch.nn.Module"),
        (lambda: capture(nn.Linear(2, 2), 3), "first axis is the batch"),
        (lambda: capture(nn.Linear(2, 2), torch.tensor(1.0)), "first axis is the batch"),
        (lambda: capture(zoo.TiedLookups(), (torch.zeros(2, 13), tokens(3, 2), tokens(2, 2))),
         "batches [2, 3]"),
        (lambda: capture(nn.Linear(2, 2), torch.zeros(4, 3)), "cannot trace"),
        (lambda: capture(nn.Linear(2, 2), torch.zeros(4, 3)), "what its forward pass takes"),
        (lambda: capture(nn.Linear(2, 2), torch.zeros(4, 2), element_bytes=3), "give 1, 2, 4 or 8"),
        (lambda: capture(Small(lambda m, x: torch.einsum("id,jd->d", x, x)), torch.zeros(4, 5)),
         "operation 'einsum' of 'einsum' counts every pair of"),
        (lambda: capture(Small(every_pair), torch.zeros(4, 5)), "counts every pair of"),
        (lambda: capture(Small(data_dependent), torch.zeros(2, 5, 6)), "depends on values"),
        (lambda: capture(Small(lambda m, x: m.weight * 2), torch.zeros(2, 5)), "depends on"),
        (lambda: capture(nn.LSTM(4, 4, batch_first=True), torch.zeros(2, 5, 4)), "aten.lstm"),
    ],
)  # fmt: skip
def test_refusals(call, words: str) -> None:
    with pytest.raises(InputError) as error:
        call()
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def branching(module, x):
    print("before")
    print("a graph", file=sys.stderr)
    return x if x.sum() > 0 else -x


def test_nothing_is_printed_beside_the_sentence(capsys) -> None:
    with pytest.raises(InputError, match="cannot trace") as error:
        capture(Small(branching), torch.zeros(2, 5))
    assert "\n" not in str(error.value)
    assert capsys.readouterr() == ("", "")


def test_what_a_module_prints_itself_appears(capsys) -> None:
    def telling(module, x):
        print("width", x.shape[1])
        return nn.functional.linear(x, module.weight)

    capture(Small(telling), torch.zeros(2, 4))
    # Once for each time that it is traced.
    assert set(capsys.readouterr().out.splitlines()) == {"width 4"}


def test_a_captured_module_is_planned() -> None:
    import topoopt as to

    graph = capture(on_meta(zoo.Llama, 1, 128, 4, 2, 256, 512), tokens(2, 64))
    plan = to.co_optimize(
        to.Job(graph),
        to.Cluster(servers=4, degree=2, bandwidth="100Gbps"),
        SearchOptions(steps=5, chains=1),
    )
    assert plan.iteration_time_s >= plan.lower_bound_s > 0
    assert to.verify_plan(plan).ok


def test_lazy_layers_are_captured_after_their_first_call() -> None:
    module = nn.Sequential(nn.Flatten(), nn.LazyLinear(4))
    example = torch.zeros(2, 3, 5)
    with pytest.raises(InputError, match="its lazy layers have no shapes yet; call the module"):
        capture(module, example)
    module(example)
    assert capture(module, example).parameters == 4 * 15 + 4
