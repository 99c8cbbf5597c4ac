"""Placements that leave nothing but data parallelism to the network, by every pair of ranks."""

from itertools import product

import pytest

from parallelism.transformers.layout import Layout
from parallelism.transformers.placement import Placement, axis_orders

LAYOUTS = [
    Layout(tensor, context, 16 // (tensor * context * pipeline), pipeline, expert)
    for tensor, context, pipeline, expert in product((1, 2, 8), (1, 2), (1, 2, 4), (1, 2, 4))
    if tensor * context * pipeline <= 16
    and (expert == 1 or 16 // (tensor * pipeline) % expert == 0)
]


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_ranks_that_share_samples_stages_or_experts_are_on_one_server(gpus) -> None:
    found = set()
    for layout in LAYOUTS:
        for order in axis_orders(layout):
            place = Placement(layout, gpus, order)
            context, data, pipeline = place.rank.shape
            inside = layout.tensor <= gpus
            for c, d, p in product(range(context), range(data), range(pipeline)):
                here = place.home[c, d, p]
                inside &= bool((place.home[:, d, :] == here).all())
            for group in place.expert_groups():
                for stage in group.T:
                    inside &= len({place.rank_servers(int(rank))[0] for rank in stage}) == 1
            assert place.data_across == inside
            found.add(inside)
    assert found == {True, False}
