"""Built-in workloads and our own model graphs against published and hand-worked counts."""

from dataclasses import replace

import numpy as np
import pytest

from codesign_base import InputError
from parallelism.models import get_model
from parallelism.operators.builder import GraphBuilder
from parallelism.operators.elementwise import activation
from parallelism.operators.layers import attention, dense, embedding
from topoopt.bandwidth.allocate import allocate_bandwidth, default_communicator
from topoopt.bandwidth.files.report import allocation_document, allocation_summary
from topoopt.bandwidth.model.builtin import PUBLISHED_WORKLOADS, WORKLOAD_NAMES, builtin_workload
from topoopt.bandwidth.model.collectives import Collective
from topoopt.bandwidth.model.from_model import model_workload
from topoopt.bandwidth.model.network import parse_network
from topoopt.bandwidth.model.several import RelativeTo, Together
from topoopt.bandwidth.model.workload import Layer, LayerPhase, LayerWorkload
from topoopt.bandwidth.solve.problem import AllocationObjective
from topoopt.bandwidth.solve.question import Question

NETWORK = parse_network("RI(4)_FC(8)_RI(4)_SW(32)")
REDUCE = Collective.ALL_REDUCE


@pytest.mark.parametrize(
    ("name", "parameters"), [("turing-nlg", 17.2e9), ("gpt-3", 174.6e9), ("msft-1t", 1008e9)]
)
def test_transformers_have_their_published_size(name, parameters):
    model, replica = PUBLISHED_WORKLOADS[name]
    job = builtin_workload(name)
    assert len(job.layers) == 2 * model.layers + 2
    gradients = sum(layer.weight_grad.size for layer in job.layers)
    assert gradients * replica.tensor / 2 == pytest.approx(parameters, rel=2e-3)
    # Six FLOPs a parameter and token, and the attention scores, at 0.6 of 312 TFLOP/s.
    tokens = replica.microbatch * model.sequence
    scores = 12 * model.layers * tokens * model.sequence * model.hidden
    flops = 6 * parameters * tokens + scores
    assert job.compute * replica.tensor * 0.6 * 312e12 == pytest.approx(flops, rel=5e-3)


def test_gpt3_sends_what_the_published_slice_sends():
    # LIBRA's slice: 805306368 bytes an AllReduce, twice forward and twice backward a block.
    job = builtin_workload("gpt-3")
    block = [layer for layer in job.layers if layer.name.startswith("block_7_")]
    assert [layer.forward.size for layer in block] == [805306368.0] * 2
    assert [layer.input_grad.size for layer in block] == [805306368.0] * 2
    assert sum(layer.weight_grad.size for layer in block) == 12 * 12288**2 * 2 / 16


def test_dlrm_counts():
    job = builtin_workload("dlrm")
    gradients = sum(layer.weight_grad.size for layer in job.layers)
    bottom = 13 * 512 + 512 + 512 * 256 + 256 + 256 * 128 + 128
    top = 479 * 1024 + 1024 + 1024 * 1025 + 1024 * 512 + 512 + 512 * 256 + 256 + 257
    assert gradients == 4 * (bottom + top)
    assert job.layers[0].forward.size == 512 * 26 * 128 * 4
    groups = default_communicator(NETWORK, job)
    assert groups.of("embedding")[0].sizes == NETWORK.sizes
    assert groups.of("top_0")[0].sizes == (1, 1, 1, 1)


def test_resnet_is_whole():
    job = builtin_workload("resnet-50")
    gradients = sum(layer.weight_grad.size for layer in job.layers)
    assert gradients == pytest.approx(25.557e6 * 4, rel=1e-4)
    weighted = [
        layer for layer in job.layers if "norm" not in layer.name and layer.weight_grad.size
    ]
    assert len(weighted) == 54


@pytest.mark.parametrize("name", WORKLOAD_NAMES)
def test_every_builtin_solves(name):
    answer = allocate_bandwidth(NETWORK, builtin_workload(name), Question(budget="500GB/s"))
    assert answer.solution.gap <= 1e-7
    times = answer.workloads[0]
    assert times.iteration <= times.equal_iteration * (1 + 1e-9)
    assert times.compute == pytest.approx(builtin_workload(name).compute)
    assert all(0 <= u <= 1 + 1e-9 for u in times.utilisation)
    assert answer.notes


def small_model():
    build = GraphBuilder("small", batch_per_gpu=4)
    x = build.input(8, 16)
    x = attention(build, "attention", x, heads=4)
    x = dense(build, "expand", x, 64)
    x = activation(build, "relu", x)
    x = dense(build, "contract", x, 16)
    x = dense(build, "head", x, 6)
    return build.build()


def collectives(job):
    return {
        layer.name: tuple((p.kind.value, p.size) for p in layer.phases if p.size > 0)
        for layer in job.layers
    }


def test_data_parallel_graph_by_hand():
    graph = small_model()
    job = model_workload(graph)
    found = collectives(job)
    assert found["expand"] == (("ALLREDUCE", 4.0 * (16 * 64 + 64)),)
    assert found["relu"] == ()
    assert sum(layer.weight_grad.size for layer in job.layers) == 4.0 * graph.parameters
    assert job.tensor == 1 and job.everywhere == ()


def test_tensor_parallel_graph_by_hand():
    graph = small_model()
    job = model_workload(graph, tensor=2)
    found = collectives(job)
    whole = 8 * 8 * 16 * 4.0  # samples x positions x width x bytes
    # Heads: AllReduce the output; their input is the model's own, without gradient.
    assert found["attention"] == (("ALLREDUCE", whole), ("ALLREDUCE", 4.0 * 4 * 16 * 16 / 2))
    # Columns, activation, rows: one AllReduce forward and one backward, as in Megatron-LM.
    assert found["expand"] == (("ALLREDUCE", whole), ("ALLREDUCE", 4.0 * (16 * 64 + 64) / 2))
    assert found["relu"] == ()
    assert found["contract"] == (("ALLREDUCE", whole), ("ALLREDUCE", 4.0 * (16 * 64 + 16) / 2))
    plain = model_workload(replace(graph, batch_per_gpu=8))
    assert job.layers[1].forward.compute < plain.layers[1].forward.compute
    with pytest.raises(InputError, match="no operator that splits 7 ways"):
        model_workload(graph, 7)
    with pytest.raises(InputError, match="give at least 1"):
        model_workload(graph, 0)


def test_large_tables_are_sharded():
    build = GraphBuilder("tables", batch_per_gpu=4)
    x = embedding(build, "big", 10**6, 8)
    x = dense(build, "top", x, 4)
    embedding(build, "tiny", 2, 8)
    job = model_workload(build.build())
    found = collectives(job)
    assert found["big"] == (("ALLTOALL", 4 * 8 * 4.0), ("ALLTOALL", 4 * 8 * 4.0))
    assert found["tiny"] == (("ALLREDUCE", 2 * 8 * 4.0),)
    assert job.everywhere == ("big",)


@pytest.mark.parametrize("tensor", [1, 4])
@pytest.mark.parametrize("name", ["bert-large", "vgg16", "dlrm", "candle-16"])
def test_presets_solve(name, tensor):
    job = model_workload(get_model(name), tensor)
    answer = allocate_bandwidth(NETWORK, job, Question(budget="<= 500GB/s"))
    assert answer.solution.gap <= 1e-7


def test_unknown_workloads():
    with pytest.raises(InputError, match="unknown workload 'gpt-5'"):
        builtin_workload("gpt-5")
    with pytest.raises(InputError, match="does not apply"):
        builtin_workload("dlrm", tensor=4)
    with pytest.raises(InputError, match="tensor parallelism is 0"):
        builtin_workload("gpt-3", tensor=0)
    bare = LayerWorkload(
        "bare", (Layer("a", LayerPhase(1.0), LayerPhase(1.0), LayerPhase(1.0, REDUCE, 1e6)),)
    )
    with pytest.raises(InputError, match="give a --communicator"):
        allocate_bandwidth(NETWORK, bare, Question(budget="500GB/s"))
    with pytest.raises(InputError, match="tensor parallelism of 16 cannot be laid"):
        allocate_bandwidth(
            parse_network("RI(3)_SW(8)"), builtin_workload("gpt-3"), Question(budget="5GB/s")
        )


@pytest.mark.parametrize("relative_to", list(RelativeTo))
def test_several_workloads_share_a_network(relative_to):
    jobs = [builtin_workload(name) for name in ("gpt-3", "dlrm", "resnet-50")]
    question = Question(budget="500GB/s")
    alone = [allocate_bandwidth(NETWORK, job, question) for job in jobs]
    joint = allocate_bandwidth(NETWORK, jobs, question, relative_to=relative_to)
    worst = allocate_bandwidth(
        NETWORK, jobs, question, together=Together.MAXIMUM, relative_to=relative_to
    )
    at = np.full(4, 100e9)
    for answer in (joint, worst):
        assert answer.solution.gap <= 1e-7
        for times, best in zip(answer.workloads, alone, strict=True):
            assert times.iteration >= best.solution.time * (1 - 1e-7)

    def relative(answer):
        least = [
            one.solution.time if relative_to == RelativeTo.OPTIMUM else one.problem.time.time(at)
            for one in alone
        ]
        assert answer.references == pytest.approx(least)
        return [
            one.problem.time.time(answer.bandwidth) / time
            for one, time in zip(alone, least, strict=True)
        ]

    assert sum(relative(joint)) == pytest.approx(joint.solution.primal)
    assert max(relative(worst)) == pytest.approx(worst.solution.primal)
    assert sum(relative(joint)) <= sum(relative(worst)) + 1e-7
    assert max(relative(worst)) <= max(relative(joint)) + 1e-7
    document = allocation_document(worst)
    assert [one["reference_time_s"] for one in document["workloads"]] == list(worst.references)
    assert "counts as" in allocation_summary(worst)
    assert allocation_document(alone[0])["workloads"][0]["reference_time_s"] is None


def test_the_worst_loss_to_a_network_of_its_own_does_not_depend_on_the_budget():
    """Without compute all times scale with the budget, and so must what is traded."""
    jobs = [
        LayerWorkload(name, (Layer("a", LayerPhase(0.0), LayerPhase(0.0),
                                   LayerPhase(0.0, REDUCE, size)),), (), tensor)
        for name, size, tensor in (("a", 1e9, 1), ("b", 3e9, 4))
    ]  # fmt: skip
    shares = []
    for budget in ("100GB/s", "5000GB/s"):
        worst = allocate_bandwidth(
            NETWORK, jobs, Question(budget=budget), together=Together.MAXIMUM
        )
        assert worst.solution.primal >= 1.0 - 1e-9
        shares.append(worst.bandwidth / worst.bandwidth.sum())
    assert shares[0] == pytest.approx(shares[1], rel=1e-5)


def test_without_a_budget_nothing_is_relative_to_the_optimum():
    jobs = [builtin_workload(name) for name in ("gpt-3", "dlrm")]
    question = Question(objective=AllocationObjective.COST, deadline=3.0)
    with pytest.raises(InputError, match=r"'gpt-3' has no least time alone.*--relative-to equal"):
        allocate_bandwidth(NETWORK, jobs, question)
    found = allocate_bandwidth(NETWORK, jobs, question, relative_to=RelativeTo.EQUAL)
    assert found.solution.time == pytest.approx(3.0)


def test_a_workload_of_nothing():
    idle = LayerWorkload(
        "idle", (Layer("a", LayerPhase(0.0), LayerPhase(0.0), LayerPhase(0.0)),), (), 1
    )
    document = allocation_document(allocate_bandwidth(NETWORK, idle, Question(budget="500GB/s")))
    assert document["iteration_time_s"] == 0.0
    assert document["speedup_over_equal_bandwidth"] == 1.0
    assert "idle" in allocation_summary(
        allocate_bandwidth(NETWORK, idle, Question(budget="<= 500GB/s"))
    )
    with pytest.raises(InputError, match="takes no time"):
        allocate_bandwidth(NETWORK, [idle, idle], Question(budget="500GB/s"))
