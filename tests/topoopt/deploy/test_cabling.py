"""Ports of cables: every link wired once, no port twice, nothing across panels."""

from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sites import full_site

from codesign_base import InfeasibleError
from topoopt.deploy.cabling import cable_plan
from topoopt.deploy.deployment import Deployment
from topoopt.deploy.site import Site


def plan_of(servers, degree, links, ports="directed", rings=()):
    counts = Counter(links)
    return SimpleNamespace(
        rings=[SimpleNamespace(order=list(order)) for order in rings],
        cluster=SimpleNamespace(servers=servers, degree=degree, ports=ports),
        links=[
            SimpleNamespace(source=u, target=v, cables=count)
            for (u, v), count in sorted(counts.items())
        ],
    )


@st.composite
def wirings(draw, ports="directed"):
    """Links of random permutations, so that no server has more than `degree` either way."""
    servers = draw(st.integers(2, 7))
    degree = draw(st.integers(1, 4))
    links = []
    for _ in range(degree):
        order = draw(st.permutations(range(servers)))
        kept = draw(st.lists(st.booleans(), min_size=servers, max_size=servers))
        if ports == "bidirectional":
            pairs = zip(order[::2], order[1::2], strict=False)
            links += [end for u, v in pairs for end in ((u, v), (v, u))]
        else:
            links += [(u, v) for u, v in enumerate(order) if u != v and kept[u]]
    return plan_of(servers, degree, links, ports)


def assert_wired(plan, cabling):
    degree = plan.cluster.degree
    fibres = Counter()
    sending, hearing = [], []
    for end, other in cabling.leads_to.items():
        fibres[end[0], other[0]] += 1
        sending.append(end)
        hearing.append(other)
        assert 0 <= end[1] < degree
        assert 0 <= other[1] < degree
    assert fibres == {(link.source, link.target): link.cables for link in plan.links}
    assert len(set(sending)) == len(sending)
    assert len(set(hearing)) == len(hearing)


@given(wirings())
def test_directed_links_take_free_ports(plan):
    cabling = cable_plan(plan, full_site(plan.cluster.servers, plan.cluster.degree))
    assert_wired(plan, cabling)
    # A pair that is wanted both ways has as few fibres of one direction as there can be.
    counts = {(link.source, link.target): link.cables for link in plan.links}
    one_way = sum(abs(counts.get((v, u), 0) - count) for (u, v), count in counts.items() if u < v)
    one_way += sum(count for (u, v), count in counts.items() if u > v and (v, u) not in counts)
    assert sum(not cable.both_ways for cable in cabling.cables) == one_way


@given(wirings())
def test_fibres_stay_on_their_panel(plan):
    degree = plan.cluster.degree
    site = full_site(plan.cluster.servers, degree, panels=max(degree, 2))
    cabling = cable_plan(plan, site)
    assert_wired(plan, cabling)
    if degree > 1:
        assert all(cable.source[1] == cable.target[1] for cable in cabling.cables)


@given(wirings("bidirectional"))
def test_cables_both_ways_take_one_port_at_each_end(plan):
    cabling = cable_plan(plan, full_site(plan.cluster.servers, plan.cluster.degree))
    assert_wired(plan, cabling)
    assert all(cable.both_ways for cable in cabling.cables)


@given(wirings("bidirectional"))
def test_cables_both_ways_stay_on_a_panel_or_are_refused(plan):
    degree = plan.cluster.degree
    site = full_site(plan.cluster.servers, degree, panels=max(degree, 2))
    try:
        cabling = cable_plan(plan, site)
    except InfeasibleError as error:
        assert degree > 1
        assert "one panel" in str(error)
        return
    assert_wired(plan, cabling)
    assert all(cable.source[1] == cable.target[1] for cable in cabling.cables)


def test_a_triangle_needs_three_panels():
    links = [(0, 1), (1, 0), (1, 2), (2, 1), (0, 2), (2, 0)]
    plan = plan_of(3, 2, links, "bidirectional")
    with pytest.raises(InfeasibleError, match="from server 1 to server 2"):
        cable_plan(plan, full_site(3, 2, panels=2))
    assert len(cable_plan(plan, full_site(3, 2, panels=1)).cables) == 3


def test_a_ring_of_four_is_cabled_and_addressed_as_people_do_by_hand():
    """The cable table, and the primary addresses, of FujitsuPolycom/sparkring.

    docs/GLM53_SPARK_MESH_HOST_SETUP.md, sections 2 and 6: port 0 points clockwise, and each
    cable has a subnet of 24 bits with .1 at its first end and .2 at its other. Ours begin at 0,
    theirs at 1.
    """
    ring = (0, 1, 2, 3)
    links = [end for u in ring for v in [(u + 1) % 4] for end in ((u, v), (v, u))]
    plan = plan_of(4, 2, links, "bidirectional", [ring])
    site = full_site(4, 2)
    addresses = {"cables": "198.18.0.0/21", "cable_prefix": 24}
    site = Site.model_validate({**site.model_dump(), "addresses": addresses})
    cabling = cable_plan(plan, site)
    assert [(cable.source, cable.target) for cable in cabling.cables] == [
        ((0, 0), (1, 1)), ((1, 0), (2, 1)), ((2, 0), (3, 1)), ((3, 0), (0, 1)),
    ]  # fmt: skip
    made = Deployment(plan, site, None, None, cabling)
    clockwise = [made.port_addresses[v, 0] for v in range(4)]
    counter = [made.port_addresses[v, 1] for v in range(4)]
    assert clockwise == [(f"198.18.{v}.1", 24) for v in range(4)]
    assert counter == [(f"198.18.{(v - 1) % 4}.2", 24) for v in range(4)]
