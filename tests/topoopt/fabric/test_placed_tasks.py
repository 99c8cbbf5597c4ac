"""Placed layouts as task graphs: against plain loops, timelines, and closed forms of bytes."""

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placed_tasks_oracle import plain_tasks
from small_transformers import HYBRID, LATENT, MIXTRAL, gpt
from trainings import training_of

from codesign_base import InputError
from parallelism.accelerators import get_accelerator
from parallelism.device import Server
from parallelism.taskgraph import TaskGraph, TaskKind, traffic_of
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.choices import Choices, LayoutSpace
from parallelism.transformers.enumeration import enumerate_layouts
from parallelism.transformers.gpu import rates_of
from parallelism.transformers.implementation import Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.loads import loads_of
from parallelism.transformers.placed_tasks import iteration_tasks
from parallelism.transformers.placement import AXES, Placement, axis_orders
from parallelism.transformers.schedules import schedule_of
from parallelism.transformers.timeline import PassTimes, timeline
from topoopt.fabric import Fabric, simulate
from topoopt.topology.fabrics import ideal_switch

SMALL = gpt(8, 256, 8, 1000)
SERVER = Server(get_accelerator("h100"), 4, 150e9)
RATES = rates_of("h100")
# Long messages reach 0.8 of a NIC, so that much more is carried.
CARRIED = 1 / 0.8
ALL = Choices(
    zero=(0, 1, 2, 3), recompute=("none", "full"),
    schedules=(
        "gpipe", "1f1b", "eager-1f1b", "interleaved", "breadth-first", "zero-bubble",
        "zero-bubble-v",
    ),
    across_servers=True, context=(1, 2), replicate=(1, 2),
)  # fmt: skip


def placed(model: Transformer, layout: Layout, order=AXES, gpus: int = 4, batch: int = 16):
    server = Server(get_accelerator("h100"), gpus, 150e9)
    placement = Placement(layout, gpus, order)
    loads = loads_of(training_of(model, layout), placement, RATES, server)
    return placement, schedule_of(layout, batch), loads


def canonical(tasks: TaskGraph) -> Counter:
    rows = []
    for t in range(tasks.tasks):
        collective = tasks.kind[t] >= TaskKind.ALLREDUCE
        where = tasks.groups[tasks.first[t]] if collective else int(tasks.first[t])
        rows.append(
            (
                int(tasks.kind[t]), where, int(tasks.second[t]), round(float(tasks.size[t]), 9),
                round(float(tasks.delay[t]), 12), int(tasks.operator[t]), int(tasks.phase[t]),
                int(tasks.part[t]), int(tasks.predecessors[t] > 0),
            )
        )  # fmt: skip
    return Counter(rows)


MODELS = {
    "gpt": SMALL, "latent": LATENT, "parallel": replace(SMALL, parallel=True), "hybrid": HYBRID,
}  # fmt: skip


@cache
def layouts_of(name: str) -> list[Layout]:
    return enumerate_layouts(LayoutSpace(MODELS[name], 16, 4, 16, MODELS[name].sequence, ALL))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(MODELS)), st.integers(0, 10**6), st.integers(0, 5),
    st.sampled_from([0.0, 0.25, 1.0]),
)  # fmt: skip
def test_equal_to_plain_loops(name: str, which: int, turn: int, exposed: float) -> None:
    layout = layouts_of(name)[which % len(layouts_of(name))]
    orders = axis_orders(layout)
    placement, order, loads = placed(MODELS[name], layout, orders[turn % len(orders)])
    parts = placement, order, replace(loads, exposed=exposed)
    ours, plain = iteration_tasks(*parts), plain_tasks(*parts)
    assert canonical(ours) == canonical(plain)
    network, routes = ideal_switch(4, 1e9, 1e-6)
    fabric = Fabric("switch", network, routes)
    one, two = simulate(fabric, ours).makespan, simulate(fabric, plain).makespan
    # Devices take what is ready first; ties fall by number, which differs.
    assert one == pytest.approx(two, rel=2e-3)


@pytest.mark.parametrize(
    ("schedule", "chunks"), [("gpipe", 1), ("1f1b", 1), ("zero-bubble", 1), ("zero-bubble-v", 2)]
)
def test_a_lone_pipeline_is_its_timeline(schedule: str, chunks: int) -> None:
    layout = Layout(4, 1, 1, 4, schedule=schedule, virtual_stages=chunks, zero=0)
    placement, order, loads = placed(SMALL, layout, batch=8)
    tasks = iteration_tasks(placement, order, loads)
    network, routes = ideal_switch(4, 1e18, 0.0)
    got = simulate(Fabric("instant", network, routes), tasks).makespan
    none = np.zeros(4 * chunks)
    expected = timeline(order, PassTimes(*loads.seconds, none, none)).makespan
    # The tied embedding is summed before the update, at no cost here.
    assert got == pytest.approx(expected + loads.update_s, rel=1e-6)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_gradients_and_weights_move_their_exact_bytes(zero: int) -> None:
    layout = Layout(4, 1, 4, 1, zero=zero)
    placement, order, loads = placed(SMALL, layout, batch=16)
    sent = traffic_of(iteration_tasks(placement, order, loads)).allreduce_sent()
    gradient, weight = loads.gradients[0].dense, loads.weights[0].dense
    rounds = order.microbatches
    times = {0: (2, 0), 1: (1, 1), 2: (rounds, 1), 3: (rounds, 2 * rounds)}[zero]
    expected = (4 - 1) * (times[0] * gradient + times[1] * weight)
    assert sent == pytest.approx(expected)


def test_ranks_of_one_server_share_what_leaves_it() -> None:
    """Two ranks a server pass on three of four chunks each, of which the last leaves it."""
    layout = Layout(2, 1, 4, 1, zero=0)
    placement, order, loads = placed(SMALL, layout)
    sent = traffic_of(iteration_tasks(placement, order, loads)).allreduce_sent()
    assert sent == pytest.approx(2 * 2 * 3 / 4 * loads.gradients[0].dense)


def test_tokens_go_to_experts_and_back() -> None:
    layout = Layout(4, 1, 8, 1, expert=8, zero=0)
    placement = Placement(layout, 4)
    loads = loads_of(training_of(MIXTRAL, placement.layout, sequence=128), placement, RATES, SERVER)
    tasks = iteration_tasks(placement, schedule_of(layout, 8), loads)
    per_layer = 128 * 2 * 4096 * 2  # tokens, experts of each, width, bytes
    # There and back, forward and backward; of each rank's tokens 7 of 8 leave it.
    expected = CARRIED * 8 * 32 * 4 * per_layer * 7 / 8
    assert traffic_of(tasks).transfer_sent() == pytest.approx(expected)


def test_keys_and_values_go_round() -> None:
    layout = Layout(4, 4, 1, 1, zero=0)
    placement = Placement(layout, 4)
    loads = loads_of(training_of(SMALL, placement.layout, sequence=2048), placement, RATES, SERVER)
    tasks = iteration_tasks(placement, schedule_of(layout, 1), loads)
    buffer = 2048 * 2 * 256 * 2  # tokens, keys and values, width, bytes
    gathers = tasks.kind == TaskKind.ALL_GATHER
    # Once forward; keys and values, and their gradients, backward.
    assert tasks.size[gathers].sum() == pytest.approx(CARRIED * 8 * 3 * buffer)


def test_ranks_of_one_server_pass_their_keys_on_to_the_others() -> None:
    placement = Placement(Layout(2, 4, 1, 1, zero=0), 4)
    loads = loads_of(training_of(SMALL, placement.layout, sequence=2048), placement, RATES, SERVER)
    tasks = iteration_tasks(placement, schedule_of(placement.layout, 1), loads)
    chunk = 2048 / 4 * 2 * 256 * 2
    gathers = tasks.kind == TaskKind.ALL_GATHER
    # Of two servers that share a buffer each sends half of it; four ranks pass on three chunks.
    assert tasks.size[gathers].sum() / 2 == pytest.approx(CARRIED * 8 * 3 * 3 * chunk)


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_sums_of_gradients_go_in_turn(zero: int) -> None:
    """Each piece's after that of the piece before, in the order in which passes complete them."""
    layout = Layout(4, 1, 2, 2, zero=zero)
    placement, order, loads = placed(SMALL, layout)
    tasks = iteration_tasks(placement, order, replace(loads, exposed=0.0))
    kind = TaskKind.REDUCE_SCATTER if zero else TaskKind.ALLREDUCE
    for servers in ((0, 1), (2, 3)):
        group = tasks.groups.index(servers)
        calls = np.flatnonzero((tasks.kind == kind) & (tasks.first == group))
        # Four of the last microbatch, and one of each before.
        assert calls.size == 4 + (order.microbatches - 1) * (zero == 2)
        for one, following in pairwise(calls.tolist()):
            after = tasks.successors[slice(*tasks.successor_offsets[one : one + 2])]
            assert following in after


@pytest.mark.parametrize(
    ("zero", "gathers", "sums"), [(0, 0, 2 * 3 / 8), (1, 3 / 8, 3 / 8), (2, 3 / 8, 15 / 8)]
)
def test_what_software_exposes_adds_to_an_iteration_once(zero, gathers, sums) -> None:
    """Of ports so fast that passes hide the rest; with ZeRO 2 in each of four microbatches.

    A quarter of what is hidden, the first or last piece, is not.
    """
    placement, order, loads = placed(SMALL, Layout(4, 1, 4, 1, zero=zero))
    fabric = Fabric("switch", *ideal_switch(4, 1e12, 0.0))
    bare, shown = (
        simulate(fabric, iteration_tasks(placement, order, replace(loads, exposed=share))).makespan
        for share in (0.0, 0.5)
    )
    weights, gradients = loads.weights[0].dense, loads.gradients[0].dense
    added = (gathers * weights + sums * gradients) * 3 / 4 / 1e12
    assert shown - bare == pytest.approx(added, rel=1e-2)  # messages are whole packets


def test_what_software_exposes_holds_up_no_other_stage() -> None:
    """Sums of all stages in the end, weights of all in the beginning, are exposed once."""
    layout, late = Layout(4, 1, 2, 2), []
    placement, order, loads = placed(SMALL, layout)
    for exposed in (0.0, 1.0):
        tasks = iteration_tasks(placement, order, replace(loads, exposed=exposed, tied_bytes=0.0))
        late.append(simulate(Fabric("switch", *ideal_switch(4, 1e9, 0.0)), tasks).makespan)
    most = max(loads.weights[k].dense + loads.gradients[k].dense for k in (0, 1))
    assert 0.0 < late[1] - late[0] < 1 / 2 / 1e9 * most


def test_tensor_groups_over_servers_wait_for_their_sums() -> None:
    layout = Layout(8, 1, 2, 1, zero=0)
    placement, order, loads = placed(SMALL, layout)
    assert placement.servers_per_rank == 2
    tasks = iteration_tasks(placement, order, loads)
    sums = (tasks.kind == TaskKind.ALLREDUCE) & (tasks.phase != 5)
    groups = {tasks.groups[g] for g in tasks.first[sums].tolist()}
    assert groups == {(0, 1), (2, 3)}
    # Two servers that share a buffer send half of it each; of eight chunks, seven leave each.
    assert tasks.size[sums].sum() / 2 == pytest.approx(
        7 / 8 * 2 * order.microbatches * loads.tensor_bytes.sum()
    )
    # Inside servers, at the same time, each GPU passes on seven eighths.
    assert tasks.delay[sums].sum() == pytest.approx(
        2 * 7 / 8 * 2 * order.microbatches * loads.tensor_bytes.sum() / loads.gather_rate
    )
    assert not (tasks.size[sums] * tasks.delay[sums]).any()


def test_orders_that_place_alike_are_tried_once() -> None:
    assert len(axis_orders(Layout(8, 1, 4, 1))) == 1
    assert len(axis_orders(Layout(8, 2, 4, 1))) == 2
    assert len(axis_orders(Layout(8, 2, 4, 2))) == 6


@given(st.permutations(AXES), st.sampled_from([(2, 2, 4), (1, 4, 4), (4, 1, 2)]))
def test_every_rank_has_a_place(order, degrees) -> None:
    context, data, pipeline = degrees
    placement = Placement(Layout(2, context, data, pipeline), 4, tuple(order))
    assert sorted(placement.rank.ravel().tolist()) == list(range(context * data * pipeline))
    counts = np.bincount(placement.home.ravel())
    assert (counts == 2).all()
    # Neighbours along the innermost axis that is split sit together.
    inner = next(axis for axis in order if getattr(placement.layout, axis) > 1)
    moved = np.moveaxis(placement.home, AXES.index(inner), 0)
    assert (moved[0] == moved[1]).all()


def test_nonsense_is_refused() -> None:
    with pytest.raises(InputError, match="one must divide"):
        Placement(Layout(3), 4)
    with pytest.raises(InputError, match="no whole servers"):
        Placement(Layout(2), 4)
    with pytest.raises(InputError, match="order is"):
        Placement(Layout(4), 4, ("data", "data", "pipeline"))
    with pytest.raises(InputError, match="layouts: zero"):
        Choices(zero=(4,))
    with pytest.raises(InputError, match="layouts: recompute"):
        Choices(recompute=())


def test_layouts_are_what_brute_force_finds() -> None:
    choices = Choices(
        zero=(1,), recompute=("none",), schedules=("1f1b",), microbatch=(1,), context=(1, 2)
    )
    found = {
        (x.tensor, x.context, x.data, x.pipeline)
        for x in enumerate_layouts(LayoutSpace(SMALL, 16, 4, 16, 2048, choices))
    }
    expected = {
        (t, c, d, p)
        for t in (1, 2, 4)
        for c in (1, 2)
        for d in range(1, 17)
        for p in range(1, 9)
        if t * c * d * p == 16 and 16 % d == 0
    }
    assert found == expected


def test_weight_passes_gather_no_weights() -> None:
    """ZeRO 3 gathers for forward and backward passes for inputs, whatever the schedule."""
    sent = []
    for schedule in ("1f1b", "zero-bubble"):
        parts = placed(SMALL, Layout(4, 1, 4, 1, schedule=schedule, zero=3))
        tasks = iteration_tasks(*parts)
        sent.append(tasks.size[tasks.kind == TaskKind.ALL_GATHER].sum())
    assert sent[0] == pytest.approx(sent[1])
    rounds, weights = parts[1].microbatches, parts[2].weights[0]
    assert sent[0] == pytest.approx(2 * rounds * weights.dense)


def test_stages_that_share_nothing_send_every_copy() -> None:
    """Without scatter and gather, each tensor rank sends the whole output (Narayanan et al.)."""
    placement = Placement(Layout(4, 1, 1, 2, sequence_parallel=False), 4)
    trainings = [
        training_of(SMALL, placement.layout, Implementation(scatter_gather=gathered))
        for gathered in (True, False)
    ]
    shared, every = (loads_of(each, placement, RATES, SERVER) for each in trainings)
    assert shared.boundary_bytes == CARRIED * 2 * 2048 * 256
    assert every.boundary_bytes == 4 * shared.boundary_bytes


@pytest.mark.parametrize(
    "wrong", [{"modules": ("norms", "activations") * 400}, {"tensor": (0, 1) * 400}]
)
def test_long_lists_of_wrong_choices_are_not_shown_whole(wrong):
    with pytest.raises(InputError, match="layouts: ") as refused:
        Choices(**wrong)
    assert len(str(refused.value)) < 200
    many = ("norms", "up-projections", "activations") * 400
    with pytest.raises(InputError, match="layout: modules is") as refused:
        Layout(tensor=1, context=1, data=1, pipeline=1, recompute="modules", modules=many)
    assert len(str(refused.value)) < 400
