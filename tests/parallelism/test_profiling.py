"""What `topoopt profile` runs has the shapes and FLOPs that it stands for, and is read back."""

import json
from pathlib import Path

import pytest

from codesign_base import InputError
from parallelism.graph import Mode, ModelGraph, OperatorKind
from parallelism.importers.profiling import needed_bytes, profile_operators
from parallelism.importers.recipes import Workshop, part_of
from parallelism.model_file import load_model
from parallelism.models import get_model
from parallelism.operators.builder import GraphBuilder
from parallelism.operators.layers import batch_norm
from parallelism.operators.shapes import Tensor
from parallelism.profile import ProfileModel
from parallelism.profile_file import load_profile, measured_name
from parallelism.transformers.attention import Attention, LatentAttention
from topoopt.problem.options import SearchOptions

torch = pytest.importorskip("torch", reason="profiling needs PyTorch, which is optional")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

TINY = {"hidden": 32, "feed_forward": 64, "layers": 1, "vocabulary": 96, "sequence": 16}
GRAPHS = {
    "dlrm": get_model("dlrm", tables=2, rows=64, dim=16, bottom_width=16, top_width=16, bag=4),
    "candle": get_model("candle", width=16, tower_layers=2),
    "bert": get_model("bert", blocks=1, hidden=16, heads=4, sequence=8),
    "bert-base": get_model(
        "bert-base", blocks=1, hidden=16, heads=4, sequence=8, vocabulary=32, positions=8
    ),
    "resnet": get_model("resnet50-imagenet", channels=(4, 4, 8, 8)),
    "vgg": get_model("vgg16", channels=(2, 4, 4, 4, 4), hidden=16, classes=8),
    "gpt2": get_model("gpt2", **TINY, attention=Attention(4, 4, 8, True, True)),
    "mixtral": get_model("mixtral-8x7b", **TINY, attention=Attention(4, 2, 8)),
    "deepseek": get_model(
        "deepseek-v2-lite",
        **(TINY | {"layers": 2}),
        attention=Attention(4, 4, 8, latent=LatentAttention(12, 10, 4, 6)),
    ),
    "vit": get_model(
        "vit-b-32", hidden=32, feed_forward=64, layers=1, attention=Attention(4, 4, 8, True, True)
    ),
}
PRODUCTS = (OperatorKind.DENSE, OperatorKind.CONV2D, OperatorKind.ATTENTION)


def distinct(graph: ModelGraph):
    return {measured_name(op): index for index, op in enumerate(graph.operators)}.values()


def counted(work) -> tuple[int, float]:
    """Elements of the output, and FLOPs of matrix products as PyTorch counts them."""
    with FlopCounterMode(display=False) as counter:
        elements = work.forward().numel()
    return elements, float(counter.get_total_flops())


@pytest.mark.parametrize("name", GRAPHS)
def test_work_has_the_operators_shapes_and_flops(name: str) -> None:
    graph = GRAPHS[name]
    shop = Workshop(torch, "meta", graph.element_bytes)
    for index in distinct(graph):
        op = graph.operators[index]
        work = shop.work(part_of(graph, index, 2))
        assert work.exact, op.name
        elements, flops = counted(work)
        assert elements == 2 * op.output_elements, op.name
        if op.kind in PRODUCTS:
            # Softmax is no product, PyTorch counts masked scores as well, and experts whose
            # tokens do not divide evenly are rounded down.
            assert flops == pytest.approx(2 * op.forward_flops, rel=0.25), op.name
        if op.kind in PRODUCTS[:2] and "experts" not in op.name:
            assert flops == 2 * op.forward_flops, op.name


@pytest.mark.parametrize("name", GRAPHS)
def test_half_of_an_operator_has_half_of_its_flops(name: str) -> None:
    graph = GRAPHS[name]
    shop = Workshop(torch, "meta", graph.element_bytes)
    for index in distinct(graph):
        op = graph.operators[index]
        for split in op.splits:
            if split.extent % 2:
                continue
            whole, flops = counted(shop.work(part_of(graph, index, 2)))
            half = shop.work(part_of(graph, index, 2, split.mode, 2))
            if not half.exact:
                continue
            elements, share = counted(half)
            assert share == pytest.approx(flops / 2), (op.name, split)
            assert elements * (2 if split.mode.slices_output else 1) == whole, (op.name, split)


def test_an_operator_that_is_only_counted_is_timed_by_its_counts() -> None:
    from parallelism.model_file import model_from_data

    custom = {
        "name": "cross", "kind": "custom", "inputs": ["x"], "output_shape": [8],
        "forward_flops": 2 * 64.0**3, "backward_flops": 1.0, "forward_bytes": 8000.0,
        "backward_bytes": 1.0,
    }  # fmt: skip
    graph = model_from_data(
        {"name": "m", "batch_per_gpu": 4, "inputs": {"x": [8]}, "operators": [custom]}, "m"
    )
    work = Workshop(torch, "cpu", 4).work(part_of(graph, 0, 1))
    assert not work.exact
    with FlopCounterMode(display=False) as counter:
        work.forward()
    assert counter.get_total_flops() == 2 * 64**3


def test_a_norm_of_one_value_per_channel_holds_its_scale_and_shift() -> None:
    build = GraphBuilder("m", 1, 4)
    batch_norm(build, "n", Tensor((8, 1, 1), None))
    work = Workshop(torch, "cpu", 4).work(part_of(build.build(), 0, 1))
    work.forward().sum().backward()
    assert [tuple(tensor.shape) for tensor in work.tensors] == [(1, 8, 1, 1), (8,), (8,)]
    assert all(tensor.grad is not None for tensor in work.tensors)


@pytest.mark.parametrize("name", ["dlrm", "gpt2"])
def test_a_profile_is_read_back_and_planned_with(name: str, tmp_path: Path) -> None:
    import topoopt as to

    graph = GRAPHS[name]
    seen = []
    measured = profile_operators(
        graph, 2, batch_per_gpu=4, max_seconds=60, progress=lambda *at: seen.append(at)
    )
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(measured.document))
    profile = load_profile(path)
    assert (profile.batch, profile.servers) == (4 * 2 * 4, 2)
    assert measured.operators == len(distinct(graph))
    assert measured.left_out == 0
    assert len(seen) == measured.measurements
    for index in distinct(graph):
        op = graph.operators[index]
        assert [point.parts for point in profile.measurements[measured_name(op)]] == [1, 2]
        for split in op.splits:
            if split.extent % 2 == 0:
                points = profile.measurements[measured_name(op, split.mode, 2)]
                assert [point.parts for point in points] == [1]
    model = ProfileModel(profile)
    first = model.operator_time(graph, 0, 32, 2, 1, Mode.OUTPUT)
    point = profile.measurements[measured_name(graph.operators[0])][1]
    assert (first.forward, first.backward) == (point.forward, point.backward)
    plan = to.co_optimize(
        to.Job(graph, 4, profile=path),
        to.Cluster(servers=2, degree=2, bandwidth="100Gbps"),
        SearchOptions(steps=5, chains=1),
    )
    assert to.verify_plan(plan).ok
    assert not any("not in the profile" in note for note in plan.notes)


def test_time_bounds_what_is_measured_but_each_operator_is() -> None:
    graph = GRAPHS["gpt2"]
    measured = profile_operators(graph, 8, batch_per_gpu=1, max_seconds=1)
    assert measured.operators == len(distinct(graph))
    assert measured.measurements + measured.left_out > measured.operators


class SlowHost:
    """A GPU that runs a kernel faster than its host launches one, on a clock of its own.

    It is torch, torch.cuda, time and a tensor at once. Kernels wait for their launch and for the
    kernel before.
    """

    launch, write, forward_s, backward_s = 40e-6, 70e-6, 5e-6, 9e-6

    def __init__(self):
        self.cuda, self.uint8 = self, None
        self.now = self.free = 0.0

    def kernel(self, seconds: float) -> None:
        self.now += self.launch
        self.free = max(self.now, self.free) + seconds

    def perf_counter(self) -> float:
        return self.now

    def synchronize(self) -> None:
        self.now = max(self.now, self.free)

    def empty(self, size, **_):
        assert size > 128 * 2**20  # The largest cache of the table's accelerators.
        return self

    def zero_(self) -> None:
        self.kernel(self.write)

    def ones_like(self, out):
        return out

    def Event(self, **_):
        return Mark(self)

    # An operator's forward pass, and the backward pass of its output.
    def forward(self):
        self.kernel(self.forward_s)
        return self

    def backward(self, gradient) -> None:
        self.kernel(self.backward_s)


class Mark:
    def __init__(self, host: SlowHost) -> None:
        self.host = host

    def record(self) -> None:
        self.at = max(self.host.now, self.host.free)

    def elapsed_time(self, other: "Mark") -> float:
        return (other.at - self.at) * 1e3


def test_a_gpu_is_timed_without_its_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    from parallelism.importers import profiling
    from parallelism.importers.recipes import Runnable

    host = SlowHost()
    monkeypatch.setattr(profiling, "time", host)
    clock = profiling._Clock(host, "cuda")
    forward, backward = clock.measure(Runnable(host.forward, []))
    assert forward == pytest.approx(host.forward_s)
    assert backward == pytest.approx(host.backward_s)


def test_a_pass_that_takes_long_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from parallelism.importers import profiling

    for seconds, passes in ((3.0, 1), (1e-4, 21)):
        took = []

        def one_pass(*_, seconds=seconds, took=took):
            took.append(seconds)
            return seconds, seconds

        monkeypatch.setattr(profiling._Clock, "_pass_seconds", one_pass)
        named = []
        measured = profile_operators(GRAPHS["dlrm"], 1, timing=named.append)
        assert len(took) == passes * measured.measurements
        assert len(named) == measured.measurements == len(set(named))


def test_precision_is_set_for_the_measurements_alone() -> None:
    from parallelism.importers.profiling import _products_in

    backends = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [backend.allow_tf32 for backend in backends]
    for precision, expected in (("tf32", True), ("fp32", False)):
        with pytest.raises(KeyError), _products_in(torch, precision):
            assert [backend.allow_tf32 for backend in backends] == [expected] * 2
            raise KeyError
        assert [backend.allow_tf32 for backend in backends] == before
    with _products_in(torch, None):
        assert [backend.allow_tf32 for backend in backends] == before


def test_needed_bytes_grow_with_samples_and_shrink_with_parts() -> None:
    graph = GRAPHS["gpt2"]
    index = graph.index("layer_0_expand")
    one = needed_bytes(part_of(graph, index, 1))
    assert needed_bytes(part_of(graph, index, 2)) > one
    assert needed_bytes(part_of(graph, index, 1, Mode.OUTPUT, 2)) < one


def test_products_that_stand_for_counts_must_fit_in_memory_too(tmp_path: Path) -> None:
    """1e18 FLOPs of a sample are a product of 794 thousand rows, whatever its output takes."""
    operator = {"name": "much", "kind": "custom", "inputs": ["x"], "output_shape": [4],
                "forward_flops": 10**18, "backward_flops": 10**18, "forward_bytes": 512,
                "backward_bytes": 512}  # fmt: skip
    whole = {"name": "heavy", "batch_per_gpu": 1, "inputs": {"x": [4]}, "operators": [operator]}
    path = tmp_path / "heavy.json"
    path.write_text(json.dumps(whole))
    with pytest.raises(InputError, match="'much' of 1 sample: its arrays do not fit in the memory"):
        profile_operators(load_model(path), 1)


@pytest.mark.parametrize("name", GRAPHS)
def test_what_memory_is_asked_for_is_what_the_tensors_hold(name: str) -> None:
    graph = GRAPHS[name]
    shop = Workshop(torch, "cpu", graph.element_bytes)
    for index in distinct(graph):
        part = part_of(graph, index, 2)
        held = sum(each.numel() * each.element_size() for each in shop.work(part).tensors)
        assert shop.without_memory().held_bytes(part) == 2 * held


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"servers": 0}, "servers is 0"),
        ({"servers": True}, "servers is True"),
        ({"servers": 2.5}, "servers is 2.5"),
        ({"servers": 2, "batch_per_gpu": 0}, "batch_per_gpu is 0"),
        ({"servers": 2, "batch_per_gpu": 1.5}, "batch_per_gpu is 1.5"),
        ({"servers": 2, "device": "tpu"}, "choose cpu or cuda"),
        ({"servers": 2, "max_seconds": float("nan")}, "max_seconds is nan"),
        ({"servers": 2, "precision": "tf32"}, "give device='cuda' or leave precision out"),
        ({"servers": 2, "precision": "int8"}, "choose fp32 or tf32"),
        ({"servers": 2, "batch_per_gpu": 10**12}, "do not fit in the memory"),
    ],
)
def test_refusals(arguments: dict, words: str) -> None:
    with pytest.raises(InputError) as error:
        profile_operators(GRAPHS["gpt2"], **arguments)
    assert words in str(error.value)


def test_elements_of_one_byte_are_refused() -> None:
    with pytest.raises(InputError, match="elements of 1 byte cannot"):
        Workshop(torch, "cpu", 1)
