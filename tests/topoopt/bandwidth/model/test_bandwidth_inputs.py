"""Networks, prices, workloads, communicators and constraints: what is read, what is refused."""

import numpy as np
import pytest

from codesign_base import InputError
from topoopt.bandwidth.model.communicator import (
    Communicator,
    NpuGroup,
    hybrid_communicator,
    load_communicator,
)
from topoopt.bandwidth.model.cost import cost_coefficients, default_cost, load_cost
from topoopt.bandwidth.model.loops import check_layers
from topoopt.bandwidth.model.network import (
    MultiDimNetwork,
    default_levels,
    load_multi_dim_network,
    parse_network,
    read_network,
)
from topoopt.bandwidth.model.workload import LayerWorkload, load_layer_workload, parse_workload
from topoopt.bandwidth.solve.constraints import budget_constraint, parse_constraints
from topoopt.topology.zoo.blocks import BuildingBlock

FOUR = parse_network("RI(4)_FC(8)_RI(4)_SW(32)")
NETWORK = """
Topology: [ Ring, FullyConnected, Switch ]
NpusCount: [ 16, 8, 32 ]
CostDimension: [ InterPackage, InterNode, InterPod ]
"""
COST = """
InterPackage: {Link: 4.0, Switch: 13.0}
InterNode: {Link: 5.0}
InterPod: {Link: 7.8, Switch: 18.0, Nic: 31.6}
"""
GROUPS = "Forward: [4, 4, -1, -1]\nInputGrad: [4, 4, -1, -1]\nWeightGrad: [-1, 2, 4, 32]\n"
LAYER = "Q1 -1 9375 NONE 0 9375 ALLREDUCE 805 9375 ALLREDUCE 452 10\n"


def written(tmp_path, text, name="file.yml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_notation_and_file_agree(tmp_path):
    network = parse_network("RI(16)_FC(8)_SW(32)")
    assert network.npus == 4096 and network.dimensions == 3
    assert network.blocks == (
        BuildingBlock.RING,
        BuildingBlock.FULLY_CONNECTED,
        BuildingBlock.SWITCH,
    )
    assert load_multi_dim_network(written(tmp_path, NETWORK)) == network
    assert read_network(str(written(tmp_path, NETWORK))) == network
    assert parse_network(" ri( 16 ) _fc(8)_SW(32)") == network
    assert parse_network(network.notation) == network
    assert default_levels(1) == ("InterPod",)
    assert default_levels(6)[:3] == ("InterChiplet",) * 3 and default_levels(6)[-1] == "InterPod"


def test_extensions_of_the_network_file(tmp_path):
    extra = "LatencyNs: [10, 20.5, 700]\nInNetworkReduction: [false, false, true]\n"
    network = load_multi_dim_network(written(tmp_path, NETWORK + extra))
    assert network.latencies == pytest.approx((1e-8, 2.05e-8, 7e-7))
    assert network.reducing == (False, False, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no dimension"),
        ("RI(4)_XX(8)", "'XX\\(8\\)' is no dimension"),
        ("RI(4)FC(8)", "is no dimension"),
        ("RI(1)", "size of dimension 0 is 1"),
        ("RI(-4)", "is no dimension"),
        ("RI(4)_", "is no dimension"),
        ("_".join(["RI(1000000)"] * 3), "more than 1e12 NPUs"),
        ("_".join(["RI(2)"] * 65), "65 dimensions"),
    ],
)
def test_bad_notation(text, message):
    with pytest.raises(InputError, match=message):
        parse_network(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("Ring,", "Torus,"), "'Torus'"),
        (
            ("[ 16, 8, 32 ]", "[ 16, 8 ]"),
            "NpusCount has 2 entries, but Topology has 3 dimensions; give one each",
        ),
        (("16,", "16.5,"), "size of dimension 0 is 16.5"),
        (("16,", "true,"), "size of dimension 0 is True"),
        (("Topology", "Topologies"), "unknown field 'Topologies'"),
        (("NpusCount: [ 16, 8, 32 ]", ""), "'NpusCount' is missing"),
        (("NpusCount: [ 16, 8, 32 ]", "NpusCount: 16"), "give a list"),
        (("Topology:", "NpusCount: [1]\nTopology:"), "occurs twice"),
        (("[ 16, 8, 32 ]", "[ 16, 8, 32"), "not valid YAML"),
        (
            ("InterPod ]", "InterPod ]\nLatencyNs: []"),
            "LatencyNs has 0 entries, but Topology has 3",
        ),
        (("InterPod ]", "InterPod ]\nInNetworkReduction: []"), "InNetworkReduction has 0 entries"),
        (("InterPod ]", "InterPod ]\nLatencyNs:"), "LatencyNs is null; give a list"),
        (("InterPod ]", "InterPod ]\nLatencyNs: [1, true, 2]"), "LatencyNs has true; give numbers"),
        (("InterPod ]", "InterPod ]\nLatencyNs: [1, .nan, 2]"), "latency of dimension 1 is nan"),
        (
            ("InterPod ]", "InterPod ]\nInNetworkReduction: [true, false, true]"),
            "only a Switch reduces",
        ),
    ],
)
def test_bad_network_files(tmp_path, change, message):
    with pytest.raises(InputError, match=message) as caught:
        load_multi_dim_network(written(tmp_path, NETWORK.replace(*change)))
    assert "file.yml" in str(caught.value) and "\n" not in str(caught.value)


def test_cost_by_hand(tmp_path):
    network = parse_network("RI(16)_FC(8)_SW(32)")
    prices = load_cost(written(tmp_path, COST))
    expected = np.array([4.0, 5.0, 7.8 + 18.0 + 31.6]) * 4096
    assert cost_coefficients(network, prices) * 1e9 == pytest.approx(expected)
    # The same sum from single components: links of a block and their bandwidths.
    b, n = 30.0, 8
    links = n * (n - 1) * (b / (n - 1)) * 5.0
    assert links * (4096 / n) == pytest.approx(expected[1] * b)
    assert default_cost().levels["InterPod"].nic == 31.6
    assert "LIBRA" in default_cost().source
    assert load_cost(written(tmp_path, COST + "Npu: 1000\n")).npu == 1000.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("Link: 5.0", "Link: .nan"), "InterNode.Link is nan"),
        (("Link: 5.0", "Link: -1"), "InterNode.Link is -1"),
        (("Link: 5.0", "Link: free"), "InterNode.Link is 'free'"),
        (("Link: 5.0", "Link:"), "InterNode.Link is null; give a number"),
        (("Link: 5.0", "Link: 1e30"), r"InterNode.Link is '1e30'; .*, such as 1.0e\+9"),
        (("Link: 5.0", "Link: 1.0e+30"), r"InterNode.Link is 1e\+30; .* from 0 to 1.0e\+12"),
        (("Link: 5.0", "Links: 5.0"), "unknown field 'Links'"),
        (("Link: 5.0", "Switch: 5.0"), "'Link' is missing"),
        (("{Link: 5.0}", "5.0"), "InterNode is 5.0"),
    ],
)
def test_bad_cost_files(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        load_cost(written(tmp_path, COST.replace(*change)))


def test_missing_prices(tmp_path):
    prices = load_cost(written(tmp_path, COST))
    told = (
        r"level 'InterChiplet' of dimension 0 \(CostDimension in a network file\) is not in cost "
        r"file '.*file.yml'; name one of its levels there \(.*InterPod\), or give a cost file with"
    )
    with pytest.raises(InputError, match=told):
        cost_coefficients(FOUR, prices)
    with pytest.raises(InputError, match="'InterNode' has no Switch price"):
        cost_coefficients(parse_network("RI(16)_SW(8)_SW(32)"), prices)


def test_communicator_files(tmp_path):
    made = load_communicator(written(tmp_path, GROUPS), FOUR)
    assert made.groups[0] == NpuGroup((4, 4, 1, 1), (1, 1, 1, 1))
    assert made.of("anything")[2].sizes == (1, 2, 4, 32)
    layers = (
        "Stride:\n  WeightGrad: [-1, 4, 1, 1]\n"
        "Layers:\n  'expert*':\n    Forward: [-1, 8, -1, -1]\n  Q1: {WeightGrad: [4, 8, 4, 32]}\n"
    )
    made = load_communicator(written(tmp_path, GROUPS + layers), FOUR)
    assert made.groups[2].strides == (1, 4, 1, 1)
    assert made.of("expert_3")[0].sizes == (1, 8, 1, 1)
    assert made.of("expert_3")[1] == made.groups[1]
    assert made.of("Q1")[2].sizes == FOUR.sizes
    with pytest.raises(InputError, match="no layer of workload 'w' is called 'expert"):
        check_layers(LayerWorkload("w", parse_workload(LAYER, "f", "w").layers), made)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("Forward: [4,", "Forward: [64,"), "a group of 64 on dimension 0, which has 4 members"),
        (("Forward: [4,", "Forward: [3,"), "a group of 3 does not divide the 4"),
        (("Forward: [4,", "Forward: [0,"), "size 0 on dimension 0"),
        (("Forward: [4, 4, -1, -1]", "Forward:"), "is null; give a list of whole numbers"),
        (("Forward: [4,", "Forward: [-2,"), "size -2 on dimension 0"),
        (("Forward: [4,", "Forward: [4.0,"), "give a list of whole numbers"),
        (("Forward: [4,", "Forward: [true,"), "give a list of whole numbers"),
        (("Forward: [4,", "Forward: ["), "3 entries for 4 dimensions"),
        (("Forward", "forward"), "unknown field 'forward'"),
        (("Forward: [4, 4, -1, -1]", ""), "'Forward' is missing"),
        (("WeightGrad: [-1, 2", "Stride: {WeightGrad: [1, 5, 1, 1]}\nWeightGrad: [-1, 2"),
         "2 members at stride 5"),
        (("WeightGrad", "Layers: {a: {Backward: [1]}}\nWeightGrad"), "unknown field 'Backward'"),
    ],
)  # fmt: skip
def test_bad_communicators(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        load_communicator(written(tmp_path, GROUPS.replace(*change)), FOUR)


def test_hybrid_groups():
    made = hybrid_communicator(FOUR, 16)
    assert made.groups[0].sizes == (4, 4, 1, 1)
    assert made.groups[2] == NpuGroup((1, 2, 4, 32), (1, 4, 1, 1))
    assert hybrid_communicator(FOUR, 128).groups[2].sizes == (1, 1, 1, 32)
    assert hybrid_communicator(FOUR, 1).groups[2].sizes == FOUR.sizes
    for tensor in (0, 3, 24, 4096 * 2):
        with pytest.raises(InputError, match=f"tensor parallelism of {tensor}"):
            hybrid_communicator(FOUR, tensor)


def test_workload_files(tmp_path):
    plain = load_layer_workload(written(tmp_path, LAYER, "plain.txt"))
    assert plain.name == "plain"
    layer = plain.layers[0]
    assert layer.forward.compute == pytest.approx(9.375e-6)
    assert (layer.input_grad.size, layer.weight_grad.size) == (805.0, 452.0)
    headed = load_layer_workload(written(tmp_path, "HYBRID_TRANSFORMER\n1\n\n" + LAYER, "h.txt"))
    assert headed.layers == plain.layers
    options = "HYBRID_TRANSFORMER model_parallel_NPU_group: 4\n1\n" + LAYER
    assert parse_workload(options, "f", "w").layers == plain.layers
    repeated = parse_workload(LAYER + LAYER.replace("Q1", "Q2"), "f", "w")
    assert repeated.distinct == ((layer.phases, 2),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DATA\n2\n" + LAYER, "says 2 layers, but 1 follow"),
        ("DATA\n" + LAYER, "not a number of layers"),
        ("DATA\n0\n", "no layers"),
        ("UNKNOWN\n1\n" + LAYER, "line 1 has 1 column;"),
        (LAYER + "X -1 5\n", "line 2 has 3 columns"),
        (LAYER.replace("805", "nan"), "input gradient bytes is 'nan'"),
        (LAYER.replace("805", "-805"), "input gradient bytes is '-805'"),
        (LAYER.replace("Q1 -1 9375", "Q1 -1 1e999"), "forward compute"),
        (LAYER.replace("ALLREDUCE 805", "ALLSHUFFLE 805"), "unknown collective 'ALLSHUFFLE'"),
        (LAYER.replace("NONE 0", "NONE 7"), "7 bytes but no collective"),
        (LAYER.replace("-1", "x"), "dependency is 'x'"),
        (LAYER.replace(" 10\n", " ten\n"), "update time is 'ten'"),
    ],
)
def test_bad_workloads(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        load_layer_workload(written(tmp_path, text, "w.txt"))


def rows(*texts, n=3, **options):
    made = parse_constraints(texts, n, **options)
    return [
        (row.tolist(), bound, bool(equal))
        for row, bound, equal in zip(made.matrix, made.bound, made.equality, strict=True)
    ]


def test_constraints_by_hand():
    assert rows("b0 == 500") == [([1, 0, 0], 500e9, True)]
    assert rows("500 >= b0") == [([1, 0, 0], 500e9, False)]
    assert rows("b0 == 4Tbps") == [([1, 0, 0], 500e9, True)]
    assert rows("b1 + b2 <= 200 GB/s") == [([0, 1, 1], 200e9, False)]
    assert rows("b0 >= b1 >= b2") == [([-1, 1, 0], 0, False), ([0, -1, 1], 0, False)]
    assert rows("2*b0 - 0.5 b1 <= 3 + b2 - 1") == [([2, -0.5, -1], 2e9, False)]
    assert rows("-b0 >= -7") == [([1, 0, 0], 7e9, False)]
    assert rows("sum(b) == 1e3") == [([1, 1, 1], 1e12, True)]
    assert rows("2 sum(b) - b0 <= 8") == [([1, 2, 2], 8e9, False)]
    cost = [1.0, 2.0, 3.0]
    assert rows("cost <= 50", cost=cost, fixed_cost=10.0) == [([1, 2, 3], 40.0, False)]
    assert parse_constraints(["b0 >= b1 >= b2"], 3).names == ("b0 >= b1", "b1 >= b2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("b0", "has no <=, >= or =="),
        ("b0 < 5", "has '<'"),
        ("b0 = 5", "has '='"),
        ("b7 <= 5", "names b7"),
        ("b0 <= ", "lacks a term"),
        ("<= 5", "lacks a term"),
        ("b0 + <= 5", "lacks a term"),
        ("b0 <= nan", "cannot be read at 'nan'"),
        ("b0 <= 1e400", "a number above 1e.24"),
        ("1e400 b0 >= 1e300 sum(b)", "a number above 1e.24"),
        ("b0 <= 5 6", "cannot be read at '6'"),
        ("b0 b1 <= 5", "cannot be read at 'b1'"),
        ("b0 * 2 <= 5", "without a number"),
        ("b0 <= 5 furlongs", "cannot be read at 'furlongs'"),
        ("b0 - - b1 <= 5", "two signs"),
        ("b0 <= b0", "says nothing"),
        ("5 <= 6", "says nothing"),
        ("5GB/s b0 <= 6", "cannot be read at 'b0'"),
        ("cost <= 5", "needs prices"),
        ("", "has no <="),
    ],
)
def test_bad_constraints(text, message):
    with pytest.raises(InputError, match=message):
        parse_constraints([text], 3)


def test_cost_does_not_mix_with_bandwidth():
    with pytest.raises(InputError, match="mixes cost"):
        parse_constraints(["cost + b0 <= 5"], 2, [1.0, 1.0])
    with pytest.raises(InputError, match="mixes cost"):
        parse_constraints(["cost <= 5GB/s"], 2, [1.0, 1.0])


def test_budgets():
    assert budget_constraint("500GB/s") == "sum(b) == 500GB/s"
    assert budget_constraint("<= 500GB/s") == "sum(b) <= 500GB/s"
    assert budget_constraint("== 500") == "sum(b) == 500GB/s"
    for text in (">= 500", "", "500 apples", "-5GB/s", "nan", "0"):
        with pytest.raises(InputError, match="budget"):
            budget_constraint(text)


def test_networks_built_by_hand():
    with pytest.raises(InputError, match="it has no dimension"):
        MultiDimNetwork((), (), ())
    with pytest.raises(InputError, match="latency of dimension 0 is -1"):
        MultiDimNetwork((BuildingBlock.RING,), (4,), ("InterPod",), (-1.0,))


def test_layer_names_are_not_only_patterns():
    groups = hybrid_communicator(FOUR, 1).groups
    made = Communicator(groups, (("table[0]", hybrid_communicator(FOUR, 4).groups),))
    assert made.of("table[0]") != groups and made.of("table0") != groups
    assert made.of("table1") == groups
