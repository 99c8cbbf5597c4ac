"""Ranks, NCCL's settings, and AllReduces over the plan's cables."""

import csv
import io
import itertools
import os
import re
import subprocess
import sys
from collections import defaultdict
from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msccl_oracle import assert_right
from pipelined_plans import pipelined_plan
from sites import full_site
from small_layouts import shared_heads_plan, shared_moe_plan
from small_plans import shared_layout_plan, shared_plan

from parallelism.transformers.implementation import get_stack
from parallelism.transformers.layout import Layout
from parallelism.transformers.placement import AXES, Placement
from parallelism.transformers.presets import get_transformer
from topoopt.deploy.deployment import deployment
from topoopt.deploy.job_files import _deepep_notes, _ring_notes, job_files
from topoopt.deploy.launch import planned_layout
from topoopt.deploy.msccl_files import chunk_paths, reducing_groups
from topoopt.plan.rank_groups import token_groups
from topoopt.plan.ranks import ranks_of, ring_ranks
from topoopt.plan.rebuild import rebuild_fabric


def megatron_groups(tensor, context, data, pipeline):
    """Groups of ranks along each axis: of an array in the order tp, cp, dp, pp.

    An implementation apart of what Megatron-LM's RankGenerator("tp-cp-ep-dp-pp") returns.
    """
    grid = np.arange(tensor * context * data * pipeline).reshape(pipeline, data, context, tensor)
    axes = {"pipeline": 0, "data": 1, "context": 2, "tensor": 3}
    return {
        name: {tuple(row) for row in np.moveaxis(grid, axis, -1).reshape(-1, grid.shape[axis])}
        for name, axis in axes.items()
    }


@given(
    st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]), st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 2]), st.sampled_from(list(itertools.permutations(AXES))),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_ranks_are_numbered_as_megatron_does(tensor, context, data, pipeline, order):
    plan = pipelined_plan()
    gpus = plan.job.server.gpus
    layout = Layout(tensor=tensor, context=context, data=data * gpus, pipeline=pipeline)
    record = replace(plan.parallelization, layout=layout, order=order)
    ranks = ranks_of(replace(plan, parallelization=record))
    groups = megatron_groups(tensor, context, data * gpus, pipeline)
    for axis, expected in groups.items():
        found = {}
        for rank in ranks:
            key = tuple(at for name, at in rank.place.items() if name != axis)
            found.setdefault(key, []).append(rank.number)
        assert {tuple(group) for group in found.values()} == expected
    # Every GPU has one rank, on the server that the placement says.
    assert len({(rank.server, rank.gpu) for rank in ranks}) == layout.gpus
    placement = Placement(layout, gpus, order)
    for rank in ranks:
        at = rank.place
        assert rank.server == placement.home[at["context"], at["data"], at["pipeline"]]


TORCHRUN = """#!/bin/sh
# As torchrun does, one after another: ranks host by host, the script by Python or as it is.
while [ "${1#--n}" != "$1" ] || [ "${1#--master}" != "$1" ]; do
  case $1 in
    --nproc-per-node) gpus=$2; shift ;;
    --node-rank) node=$2; shift ;;
    --no-python) whole=yes ;;
    *) shift ;;
  esac
  shift
done
for LOCAL_RANK in $(seq 0 $((gpus - 1))); do
  RANK=$((node * gpus + LOCAL_RANK))
  export LOCAL_RANK RANK
  if [ "${whole-}" ]; then "$@"; else python3 "$@"; fi
done
"""


@pytest.mark.parametrize("order", [AXES, ("pipeline", "data", "context")])
def test_torchrun_starts_the_ranks_that_the_plan_places(order, tmp_path):
    plan = pipelined_plan()
    gpus = plan.job.server.gpus
    layout = Layout(data=2, context=2, pipeline=plan.cluster.servers * gpus // 4)
    record = replace(plan.parallelization, layout=layout, order=order)
    made = deployment(replace(plan, parallelization=record))
    (tmp_path / "python3").symlink_to(sys.executable)
    (tmp_path / "torchrun").write_text(TORCHRUN)
    (tmp_path / "torchrun").chmod(0o755)
    (tmp_path / "torchrun.sh").write_text(job_files(made)[0]["torchrun.sh"])
    show = "import os, sys; print(os.environ['RANK'], os.environ['LOCAL_RANK'], *sys.argv[1:])"
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    for server in made.servers:
        started = subprocess.run(
            ["sh", str(tmp_path / "torchrun.sh"), str(server), "-c", show, "two words"],
            env=os.environ | {"PATH": path}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        here = [rank for rank in ranks_of(made.plan) if rank.server == server]
        expected = {f"{rank.number} {rank.gpu} two words" for rank in here}
        assert set(started.stdout.splitlines()) == expected and len(expected) == gpus


def named_groups(plan, ranks):
    """Ranks of each group of stages by its name in files, and all ranks otherwise."""
    found = defaultdict(lambda: [int(rank) for rank in ranks])
    if (asked := planned_layout(plan)) is None:
        return found
    layout = asked[1]
    groups = defaultdict(list)
    for number, row in ranks.items():
        stage = row["pipeline"]
        inner = int(number) % (layout.gpus // layout.pipeline)
        whole, _, split = np.unravel_index(
            inner,
            (10**6, layout.expert, layout.expert_split),
        )
        groups[f"{stage}-tensor{row['tensor']}"].append(int(number))
        groups[f"{stage}-data{row['data']}-tensor{row['tensor']}"].append(int(number))
        groups[f"{stage}-group{whole}-{split}"].append(int(number))
        groups[f"{stage}-experts{inner % (layout.expert * layout.expert_split)}"].append(
            int(number)
        )
    return groups


def test_rings_of_servers_go_through_all_ranks_of_each():
    ranks = ranks_of(pipelined_plan())
    rings = ring_ranks([(0, 1, 2, 3), (0, 3, 2, 1)], ranks)
    for ring, order in zip(rings, [(0, 1, 2, 3), (0, 3, 2, 1)], strict=True):
        assert sorted(ring) == [rank.number for rank in ranks]
        servers = [ranks[number].server for number in ring]
        assert [server for server, _ in itertools.groupby(servers)] == list(order)
    assert rings[0][0] != rings[1][0]


def exchanging_plan():
    """A plan whose expert groups exchange tokens between servers."""
    return shared_moe_plan(expert=4)


@pytest.mark.parametrize(
    "plan", [shared_plan, shared_layout_plan, pipelined_plan, exchanging_plan, shared_heads_plan]
)
def test_collectives_are_right_over_planned_cables_alone(plan):
    made = deployment(plan())
    files, notes = job_files(made)
    ranks = {row["rank"]: row for row in csv.DictReader(io.StringIO(files["ranks.csv"]))}
    server = {host.name: number for number, host in enumerate(made.site.hosts)}
    found = [name for name in files if name.startswith("msccl/")]
    exchange = plan in (exchanging_plan, shared_heads_plan)
    assert any("alltoall" in name for name in found) == exchange
    assert any("alltoall-heads" in name for name in found) == (plan is shared_heads_plan)
    named = named_groups(made.plan, ranks)
    assert found or any("MSCCL" in note for note in notes)
    for name in found:
        group = named[name.removesuffix(".xml").partition("-stage")[2] or name]
        sent = assert_right(files[name])
        for a, b in sent:
            pair = tuple(server[ranks[str(group[at])]["host"]] for at in (a, b))
            assert pair[0] == pair[1] or pair in made.cabling.ports_to


@pytest.mark.parametrize("plan", [shared_plan, shared_layout_plan])
def test_groups_without_rings_take_those_of_the_simulation(plan):
    plan = replace(plan(), rings=[])
    made = deployment(plan)
    files, notes = job_files(made)
    found = [text for name, text in files.items() if name.startswith("msccl/")]
    assert found
    assert any("has no rings for 1 group of ranks" in note for note in notes)
    gpus = plan.job.server.gpus
    for text in found:
        pairs = {(a // gpus, b // gpus) for a, b in assert_right(text)}
        orders = rebuild_fabric(plan).rings_of(tuple(range(4)))
        edges = {edge for order in orders for edge in zip(order, order[1:] + order[:1])}  # noqa: B905
        assert {(a, b) for a, b in pairs if a != b} == edges


def test_settings_of_nccl_name_devices_and_the_range_of_cables():
    made = deployment(shared_plan(), full_site(4, 2))
    files, notes = job_files(made)
    lines = files["nccl/node-0.lab.conf"].splitlines()
    assert "NCCL_IB_HCA==mlx5_0,mlx5_1" in lines
    assert "NCCL_SOCKET_IFNAME==eno1" in lines
    assert "NCCL_IB_ADDR_RANGE=10.101.0.0/16" in lines
    assert all("own rings" in note for note in notes if note.startswith("NCCL"))
    assert files["hostfile"].splitlines()[0] == "192.0.2.1 slots=4"


@pytest.mark.parametrize(
    ("orders", "said"),
    [
        ([(0, 1, 2, 3)], ""), ([(2, 3, 0, 1)], ""),
        ([(0, 1, 2, 3), (0, 3, 2, 1)], "for 1 of 1 group that reduces the plan has others as well"),
        ([(0, 3, 2, 1)], "for 1 of 1 group that reduces the plan has others;"),
    ],
)  # fmt: skip
def test_rings_that_nccl_does_not_have_are_noted(orders, said):
    plan = shared_layout_plan()
    ring = plan.rings[0]
    plan = replace(plan, rings=[replace(ring, order=list(order)) for order in orders])
    found = [note for note in job_files(deployment(plan))[1] if "own rings" in note]
    assert len(found) == (said != "") and all(said in note for note in found)


def test_experts_that_deepep_cannot_join_are_noted():
    plan = pipelined_plan()
    stack = get_stack("megatron-deepep")
    job = replace(plan.job, model=get_transformer("deepseek-v2-lite"), implementation=stack)
    for order, gpus, starts in ((AXES, 8, True), (("pipeline", "data", "context"), 8, False)):
        layout = Layout(data=16, pipeline=2, expert=8)
        server = replace(job.server, gpus=gpus)
        record = replace(plan.parallelization, layout=layout, order=order)
        asked = replace(plan, job=replace(job, server=server), parallelization=record)
        notes = _deepep_notes(asked)
        assert (notes == []) == starts and all("DeepEP takes" in note for note in notes)


@pytest.mark.parametrize("order", list(itertools.permutations(AXES)))
@pytest.mark.parametrize(
    "degrees",
    [
        {"data": 16, "expert": 8}, {"data": 8, "expert": 4}, {"data": 32, "expert": 16},
        # Experts over tensor ranks: these send tokens, too.
        {"tensor": 2, "data": 16, "expert": 8},
        {"tensor": 2, "data": 16, "expert": 8, "expert_tensor": 1},
        {"data": 8, "context": 2, "expert": 8},
    ],
)  # fmt: skip
@pytest.mark.parametrize("gpus", [4, 8])
def test_deepep_joins_ranks_by_eights_of_their_numbers(degrees, order, gpus):
    plan = pipelined_plan()
    layout = Layout(pipeline=2, **degrees)
    job = replace(plan.job, server=replace(plan.job.server, gpus=gpus))
    record = replace(plan.parallelization, layout=layout, order=order)
    asked = replace(plan, job=job, parallelization=record)
    # Megatron-LM's group of tensor and expert ranks: next numbers of a stage.
    ranks, size = ranks_of(asked), layout.expert * layout.expert_split
    groups = [ranks[begin : begin + size] for begin in range(0, len(ranks), size)]
    hosts = [
        {rank.server for rank in group[i : i + 8]} for group in groups for i in range(0, size, 8)
    ]
    assert (_deepep_notes(asked) == []) == all(len(host) == 1 for host in hosts)


def test_groups_whose_next_hosts_share_no_cable_are_noted():
    plan = shared_layout_plan()
    made = deployment(plan)
    cabling = copy(made.cabling)
    kept = {pair: ports for pair, ports in cabling.ports_to.items() if pair != (0, 1)}
    object.__setattr__(cabling, "ports_to", kept)
    found = _ring_notes(replace(made, cabling=cabling), ranks_of(plan))
    assert len(found) == 1 and "for 1 of 1 group that reduces not every two" in found[0]
    assert found[0].endswith("the MSCCL files have the plan's")
    ringless = replace(made, cabling=cabling, plan=replace(plan, rings=[]))
    (note,) = _ring_notes(ringless, ranks_of(plan))
    assert note.endswith("for 1 of 1 group that reduces not every two of these share a cable")


@pytest.mark.parametrize(("tensor", "split"), [(1, None), (4, None), (4, 1), (4, 2)])
def test_expert_groups_are_those_of_megatron(tensor, split):
    """Of an array in the order tensor of experts, expert, data of experts, pipeline."""
    plan = pipelined_plan()
    gpus = plan.job.server.gpus
    layout = Layout(
        tensor=tensor, context=2, data=4 * gpus, pipeline=2, expert=8, expert_tensor=split
    )
    ranks = ranks_of(
        replace(plan, parallelization=replace(plan.parallelization, layout=layout, order=AXES))
    )
    width = split or tensor
    grid = np.arange(layout.gpus).reshape(2, -1, 8, width)
    expected = {tuple(row) for row in np.moveaxis(grid, 2, -1).reshape(-1, 8)}
    found = token_groups(layout, ranks)
    assert {tuple(rank.number for rank in group) for group in found.values()} == expected


def test_copies_of_sharded_states_sum_their_shares_apart():
    """Of an array in the order stage, copy, share, context, tensor; experts take tensor ranks."""
    plan = pipelined_plan()
    layout = Layout(
        tensor=2, context=2, data=4 * plan.job.server.gpus, pipeline=2, expert=2, zero=3,
        replicate=2,
    )  # fmt: skip
    plan = replace(plan, parallelization=replace(plan.parallelization, layout=layout, order=AXES))
    grid = np.arange(layout.gpus).reshape(2, 2, layout.data // 2, 2, 2)
    kinds = {
        "stage.-tensor.-copy.": np.moveaxis(grid, -1, 2).reshape(8, -1),
        "stage.-experts.-copy.": np.moveaxis(
            grid.reshape(2, 2, -1, 4), -1, 2
        ).reshape(16, -1),
        "stage.-tensor.-context.-share.*": np.moveaxis(grid, 1, -1).reshape(-1, 2),
    }  # fmt: skip
    found = reducing_groups(plan, ranks_of(plan))
    for pattern, expected in kinds.items():
        groups = [group for name, group in found.items() if re.fullmatch(pattern, name)]
        assert sorted([rank.number for rank in group] for group in groups) == sorted(
            expected.tolist()
        )
    assert len(found) == sum(map(len, kinds.values()))


@pytest.mark.parametrize(
    ("shares", "parts", "counts"),
    [((0.5, 0.5), 2, (1, 1)), ((0.7, 0.3), 4, (3, 1)), ((1.0,), 3, (3,)), ((0.9, 0.1), 2, (2, 0))],
)
def test_chunks_are_given_out_by_shares(shares, parts, counts):
    paths = [((0, i, 9), share) for i, share in enumerate(shares)]
    given_out = chunk_paths(paths, parts)
    assert tuple(given_out.count(path) for path, _ in paths) == counts
