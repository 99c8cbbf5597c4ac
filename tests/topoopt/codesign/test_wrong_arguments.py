"""Arguments of another kind than was meant, in Python."""

from dataclasses import fields, is_dataclass, replace
from functools import partial

import numpy as np
import pytest
from small_plans import shared_plan

import topoopt as to
from codesign_base.arguments import check_number, is_number, several, whole
from parallelism.accelerators import get_accelerator
from parallelism.device import Server
from parallelism.importers.profiling import profile_operators
from parallelism.models.presets import summarise
from parallelism.operators.builder import GraphBuilder
from parallelism.operators.elementwise import flatten, pool
from parallelism.operators.layers import attention, conv2d, dense, embedding
from parallelism.taskgraph import traffic_of
from parallelism.transformers.choices import Choices
from parallelism.transformers.gpu import rates_of
from parallelism.transformers.implementation import get_stack
from routing.forwarding import path_routing_tables
from routing.multicommodity import min_congestion
from routing.network import Network
from topoopt.bandwidth.allocate import allocate_bandwidth
from topoopt.bandwidth.model.builtin import builtin_workload
from topoopt.bandwidth.model.network import parse_network
from topoopt.bandwidth.solve.question import Question
from topoopt.base.frames import new_axes
from topoopt.codesign.pareto import choose_degree
from topoopt.codesign.wire import wire_tasks
from topoopt.fabric import (
    DirectCircuits,
    Transport,
    WindowedCircuits,
    critical_path,
    default_rings,
    exposed_communication,
    jittered,
    link_bytes,
    run_circuits,
    score,
    simulate,
)
from topoopt.plan.plan import parse_plan
from topoopt.plan.rebuild import rebuild
from topoopt.problem.job import nvlink_server
from topoopt.problem.prices import PriceTable, default_prices
from topoopt.problem.reconfiguration import Reconfiguration
from topoopt.problem.schedule import Schedule
from topoopt.studies.failures import fail_each, fail_randomly, random_cables, random_ports
from topoopt.studies.repairs import detoured, fail_cables, repaired
from topoopt.studies.replay import replay_fabric
from topoopt.studies.server_failures import after_servers, fail_servers, without_servers
from topoopt.studies.shared import share
from topoopt.studies.topology_report import topology_report
from topoopt.studies.validation import validate
from topoopt.studies.workload import load_workload
from topoopt.topology.circulants import select_circulant
from topoopt.topology.network_file import load_network, save_network
from topoopt.topology.zoo.registry import build_fabric

MODEL = to.models.dlrm(tables=4, batch_per_gpu=32)
A100 = get_accelerator("a100")
JOB = to.Job(MODEL)
USD = default_prices().usd
TWO = Network.from_links("two", 2, 0, [0, 1], [1, 0], 1e9, 0.0)
EACH = np.array([[0.0, 1.0], [1.0, 0.0]])
CLUSTER = to.Cluster(servers=4, degree=2, bandwidth="100Gbps")
FEW = to.SearchOptions(steps=5, confirm="none")
GRID = {"servers": (4,), "degrees": (1,), "bandwidths": ("100Gbps",)}


def llm(**asked):
    return to.Job(to.load_transformer("llama3-8b"), global_batch=16, **asked)


CASES = {
    "a model for a job": (lambda: to.co_optimize(MODEL, CLUSTER), ["job is", "topoopt.Job("]),
    "the wrong order": (lambda: to.co_optimize(CLUSTER, JOB), ["job is", "topoopt.Job("]),
    "no cluster": (lambda: to.co_optimize(JOB, 16), ["cluster is 16", "topoopt.Cluster("]),
    "a dict of options": (
        lambda: to.co_optimize(JOB, CLUSTER, {"steps": 5}),
        ["options is {'steps': 5}", "SearchOptions"],
    ),
    "one baseline": (
        lambda: to.co_optimize(JOB, CLUSTER, FEW, baselines="fat-tree"),
        ["baselines is 'fat-tree'", "('fat-tree', "],
    ),
    "one fabric": (
        lambda: to.compare(JOB, CLUSTER, FEW, fabrics="fat-tree"),
        ["fabrics is 'fat-tree'", "('fat-tree',)"],
    ),
    "an unknown fabric": (
        lambda: to.compare(JOB, CLUSTER, FEW, fabrics=["fattree"]),
        ["'fattree'", "did you mean 'fat-tree'"],
    ),
    "comparing on a number": (lambda: to.compare(JOB, 16, FEW), ["cluster is 16", "Cluster("]),
    "one number in a grid": (
        lambda: to.Grid(**{**GRID, "servers": 4}),
        ["servers is 4", "(8, 16)"],
    ),
    "one speed in a grid": (
        lambda: to.Grid(**{**GRID, "bandwidths": "100Gbps"}),
        ["bandwidths is '100Gbps'", "('100Gbps',)"],
    ),
    "a cluster for a grid": (lambda: to.explore(JOB, CLUSTER), ["grid is", "topoopt.Grid"]),
    "a model on a grid": (lambda: to.explore(MODEL, to.Grid(**GRID)), ["job is", "topoopt.Job("]),
    "a number of clusters": (lambda: to.sweep(JOB, 4), ["clusters is 4", "topoopt.Cluster("]),
    "the name of a job": (lambda: to.sweep("dlrm", CLUSTER), ["jobs is 'dlrm'", "topoopt.Job("]),
    "models of a sweep": (lambda: to.sweep([MODEL], CLUSTER), ["jobs is", "topoopt.Job("]),
    "the name of a GPU": (lambda: Server("h100"), ["accelerator is 'h100'", "get_accelerator"]),
    "the name of a server": (lambda: llm(server="h100"), ["server is 'h100'", "nvlink_server("]),
    "the name of a stack": (
        lambda: llm(implementation="nemo"),
        ["implementation is 'nemo'", "get_stack("],
    ),
    "the name of rates": (lambda: llm(rates="h100"), ["rates is 'h100'", "rates_of("]),
    "a dict of choices": (
        lambda: llm(choices={"tensor": (1,)}),
        ["choices is {'tensor': (1,)}", "Choices("],
    ),
    "one choice": (lambda: Choices(tensor=8), ["tensor is 8", "(1, 2)"]),
    "words for numbers": (lambda: Choices(zero=("1",)), ["zero is ('1',)", "(1, 2)"]),
    "a length of a graph": (
        lambda: to.Job(to.models.get_model("gpt2"), sequence=8),
        ["sequence is 8, but the model is an operator graph", "models.get_model"],
    ),
    "no such schedule": (lambda: Choices(schedules=("2f2b",)), ["schedules is '2f2b'; give some"]),
    "a word for words": (lambda: Choices(schedules="1f1b"), ["schedules is '1f1b'", "('1f1b',)"]),
    "half a token": (lambda: llm(sequence=1.5), ["sequence is 1.5", "whole number"]),
    "a word for a share": (lambda: llm(memory_reserve="a"), ["memory_reserve is 'a'", "0.1"]),
    "a number for a server": (lambda: to.Job(MODEL, server=8), ["server is 8", "topoopt.Server"]),
    "a number for a profile": (lambda: to.Job(MODEL, profile=3), ["profile is 3", "a file"]),
    "memory with a unit": (
        lambda: to.SearchOptions(memory_bytes="3GB"),
        ["memory_bytes is '3GB'", "positive number"],
    ),
    "a time with a unit": (
        lambda: to.SearchOptions(seconds="5s"),
        ["seconds is '5s'", "positive number"],
    ),
    "no chains": (lambda: to.SearchOptions(chains=None), ["chains is None", "whole number"]),
    "no engine": (lambda: to.SearchOptions(engine=None), ["engine is None", "'local'"]),
    "links with a unit": (
        lambda: Server(intra_bandwidth="25GB/s"),
        ["intra_bandwidth is '25GB/s'", "25e9"],
    ),
    "a sum of money": (lambda: to.Limits(cost_usd="10k"), ["'10k'", "positive number"]),
    "half a port": (lambda: to.Limits(ports=1.5), ["port limit is 1.5", "whole number"]),
    "limits as a number": (
        lambda: to.explore(JOB, to.Grid(**GRID), FEW, limits=5),
        ["limits is 5", "topoopt.Limits"],
    ),
    "a file of prices": (
        lambda: to.compare(JOB, CLUSTER, FEW, prices="prices.json"),
        ["prices is 'prices.json'", "load_prices"],
    ),
    "prices as a number": (
        lambda: to.co_optimize(JOB, CLUSTER, FEW, prices=3),
        ["prices is 3", "load_prices"],
    ),
    "the number of a model": (lambda: to.models.get_model(3), ["model is 3", "'dlrm-16'"]),
    "a name for a model": (lambda: to.Job("dlrm-16"), ["model is 'dlrm-16'", "models.dlrm()"]),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_in_one_sentence(case):
    asked, told = CASES[case]
    with pytest.raises(to.InputError) as refused:
        asked()
    message = str(refused.value)
    assert "\n" not in message and "; " in message and len(message) < 700
    for part in told:
        assert part in message


RINGS = parse_network("RI(4)")
GPT3 = builtin_workload("gpt-3")
RNG = np.random.default_rng(0)
LOST = fail_cables(TWO, np.array([0]))
CIRCUITS = DirectCircuits("circuits", 4, 2, 1e9, 1e-6, 1e-3)


def fabric():
    return rebuild(shared_plan()).fabric


def tasks():
    return rebuild(shared_plan()).tasks()


PATH = "its path, as a text or a pathlib.Path"


def optimized(**given):
    return to.co_optimize(JOB, CLUSTER, FEW, **given)


def explored(**given):
    return to.explore(JOB, to.Grid(**GRID), **given)


def allocated(**given):
    rings = parse_network("RI(16)_RI(4)")
    return allocate_bandwidth(rings, GPT3, Question(budget="500GB/s"), **given)


def reported(**given):
    built = build_fabric("cayley", 4, 2, 1e9)
    return topology_report(
        **{"built": built, "bandwidth": 1e9, "prices": default_prices(), **given}
    )


def swept(**given):
    return to.sweep(**{"jobs": JOB, "clusters": CLUSTER, **given})


@pytest.mark.parametrize(
    ("call", "named", "wanted"),
    [
        (lambda: to.load_transformer(5), "name_or_path is 5", "the path of a config.json"),
        (lambda: to.load_model(5), "model file is 5", PATH),
        (lambda: to.load_plan(None), "plan file is None", PATH),
        (lambda: to.verify_plan(b"x"), "plan file is b'x'", PATH),
        (
            lambda: to.co_optimize(
                to.Job(to.models.get_model("llama3-8b"), global_batch=8), CLUSTER
            ),
            "global_batch is 8",
            "or a language model by its layouts (in Python load_transformer)",
        ),
        (lambda: to.write_report(None, "r.html"), "its subject is None", "give a plan"),
        (lambda: shared_plan().summary(details="no"), "details is 'no'", "True or False"),
        (lambda: to.Cluster(4, "x", "1Gbps"), "degree is 'x'", "a whole number of at least 1"),
        (lambda: to.Cluster(4, None, "1Gbps"), "degree is None", "a whole number of at least 1"),
        (lambda: to.Cluster(4, 1.5, "1Gbps"), "degree is 1.5", "a whole number of at least 1"),
        (lambda: to.Cluster(4, True, "1Gbps"), "degree is True", "a whole number of at least 1"),
        (lambda: to.write_report(shared_plan(), 5), "report is 5", PATH),
        (lambda: to.ProfileModel(5), "profile is 5", PATH),
        (lambda: to.ProfileModel("x", roofline=5), "roofline is 5", "a topoopt.RooflineModel"),
        (lambda: to.ProfileModel("x", server=5), "server is 5", "a topoopt.Server"),
        (lambda: to.RooflineModel(5), "server is 5", "a topoopt.Server"),
        (lambda: to.RooflineModel(efficiency="1"), "efficiency is '1'", "a fraction above 0"),
        (lambda: to.RooflineModel(launch_overhead=[]), "launch_overhead is []", "zero or more"),
        (lambda: to.RooflineModel(precision=[]), "unknown precision []", "choose one of"),
        (lambda: to.Server(intra_bandwidth=None), "intra_bandwidth is None", "bytes/s"),
        (lambda: to.Job(MODEL, compute=5), "compute is 5", "a topoopt.RooflineModel"),
        (lambda: to.SearchOptions(reconfiguration=5), "reconfiguration is 5", "Reconfiguration()"),
        (lambda: to.SearchOptions(parameter_splits="no"), "parameter_splits is 'no'", "or False"),
        (lambda: to.Grid(("a",), (2,), ("100Gbps",)), "one of servers is 'a'", "(8, 16)"),
        (lambda: to.Grid((4,), b"x", ("100Gbps",)), "degrees is b'x'", "(2, 4)"),
        (lambda: to.Grid((True,), (2,), ("100Gbps",)), "one of servers is True", "whole numbers"),
        (lambda: to.Grid((4,), (2.0,), ("100Gbps",)), "one of degrees is 2.0", "whole numbers"),
        (lambda: to.Grid((4,), (np.float64(2),), ("1Gbps",)), "one of degrees is ", "whole num"),
        (lambda: to.Grid((4,), (0, 2), ("1Gbps",)), "one of degrees is 0", "of at least 1"),
        (lambda: to.Grid((4,), (2,), (True,)), "one of bandwidths is True", "('100Gbps',)"),
        (lambda: to.Limits(ports=True), "port limit is True", "a whole number"),
        (lambda: explored(global_batch=True), "global_batch is True", "a whole number"),
        (lambda: explored(global_batch=8.0), "global_batch is 8.0", "a whole number"),
        (lambda: explored(seed=1.0), "seed is 1.0", "a whole number"),
        (lambda: optimized(seed=np.bool_(True)), "seed is ", "a whole number"),
        (lambda: to.models.dlrm(lookup_skew="1"), "lookup_skew is '1'", "an exponent"),
        (lambda: to.models.dlrm(dims=5), "dims is 5", "a whole number for each table"),
        (lambda: optimized(baselines=(5,)), "one of baselines is 5", "several names"),
        (lambda: optimized(checkpoint=5), "checkpoint is 5", PATH),
        (lambda: optimized(progress=5), "progress is 5", "a function"),
        (lambda: to.compare(JOB, CLUSTER, 5), "options is 5", "a topoopt.SearchOptions"),
        (lambda: to.compare(JOB, CLUSTER, fabrics=(5,)), "one of fabrics is 5", "several names"),
        (lambda: to.compare(JOB, CLUSTER, plan_file=5), "plan_file is 5", PATH),
        (lambda: explored(prune="no"), "prune is 'no'", "True or False"),
        (lambda: explored(options=5), "options is 5", "a topoopt.SearchOptions"),
        (lambda: explored(global_batch="8"), "global_batch is '8'", "a whole number"),
        (lambda: explored(server_usd="8"), "server_usd is '8'", "US dollars"),
        (lambda: explored(least_gain=None), "least_gain is None", "a share"),
        (lambda: explored(store=5), "store is 5", PATH),
        (lambda: explored(save_plan=5), "save_plan is 5", "a function"),
        (lambda: explored(progress=5), "progress is 5", "a function"),
        (lambda: swept(clusters=()), "clusters is empty", "give at least one"),
        (lambda: swept(jobs=()), "jobs is empty", "give at least one"),
        (lambda: swept(seeds=()), "seeds is empty", "give at least one"),
        (lambda: swept(clusters=(5,)), "one of clusters is 5", "Cluster"),
        (lambda: swept(seeds=5), "seeds is 5", "several whole numbers"),
        (lambda: swept(folder=5), "folder is 5", PATH),
        (lambda: swept(baselines=5), "baselines is 5", "several names"),
        (lambda: swept(prices=5), "prices is 5", "a table"),
        (lambda: swept(progress=5), "progress is 5", "a function"),
        (lambda: to.verify_plan(shared_plan(), progress=5), "progress is 5", "a function"),
        (lambda: shared_plan().relative_time("fat-tee"), "fabric is 'fat-tee'", "compared with"),
        (lambda: get_accelerator(5), "accelerator is 5", "'h100'"),
        (lambda: get_stack(None), "stack is None", "'nemo'"),
        (lambda: replace(A100, memory_bytes="80GB"), "memory_bytes is '80GB'", "positive number"),
        (lambda: replace(A100, fp8_flops=None), "fp8_flops is None", "zero or more"),
        (lambda: PriceTable(5, USD), "source is 5", "a text"),
        (lambda: PriceTable("x", 5), "usd is 5", "points by component"),
        (lambda: PriceTable("x", {**USD, "nic": 5}), "nic is 5", "pairs of bytes/s"),
        (lambda: PriceTable("x", {**USD, "nic": {"100": 5}}), "nic has '100'", "pairs of bytes/s"),
        (lambda: PriceTable("x", {**USD, "nic": [(1e9, "5")]}), "nic has (1000000", "US dollars"),
        (lambda: fail_randomly(None, None, 1.5, 2), "count is 1.5", "whole number"),
        (lambda: fail_randomly(None, None, 1, "2"), "trials is '2'", "whole number"),
        (lambda: after_servers(None, 3), "dead is 3", "(0, 3)"),
        (lambda: after_servers(None, (1.5,)), "one of dead is 1.5", "(0, 3)"),
        (lambda: simulate(5, tasks()), "fabric is 5", "rebuild(plan).fabric"),
        (lambda: simulate(fabric(), None), "tasks is None", "rebuild(plan).tasks()"),
        (lambda: simulate(fabric(), tasks(), seed=-1, model="packet"), "seed is -1", "0 to"),
        (lambda: score(tasks(), fabric()), "fabric is of type TaskGraph", "a Fabric"),
        (lambda: score(fabric(), tasks(), limit=None), "limit is None", "seconds"),
        (lambda: simulate(fabric(), tasks(), completion_tolerance="1"), "'1'", "a fraction"),
        (lambda: min_congestion(TWO, "x"), "demand is 'x'", "a matrix"),
        (lambda: min_congestion(TWO, {"a": 1}), "demand is {'a': 1}", "a matrix"),
        (lambda: new_axes(5, (1.0, 1.0)), "axes is 5", "axes of matplotlib"),
        (lambda: link_bytes(fabric(), tasks(), enough=None), "enough is None", "seconds"),
        (lambda: jittered(5, tasks(), 2), "fabric is 5", "a Fabric"),
        (lambda: jittered(fabric(), tasks(), 1.5), "copies is 1.5", "1 to "),
        (lambda: jittered(fabric(), tasks(), 2, seed=None), "seed is None", "a whole number"),
        (lambda: replace(fabric(), network=5), "network is 5", "a Network"),
        (lambda: replace(fabric(), routes=None), "routes is None", "ecmp_routes(network)"),
        (lambda: replace(fabric(), rings=[]), "rings is []", "the rings of each group"),
        (lambda: replace(fabric(), ring_routes=5), "ring_routes is 5", "Routes"),
        (lambda: replace(fabric(), transport="tcp"), "transport is 'tcp'", "Transport"),
        (lambda: default_rings(5, fabric().routes, (0, 1, 2)), "network is 5", "a Network"),
        (lambda: default_rings(TWO, 5, (0, 1)), "routes is 5", "the Routes of a Fabric"),
        (lambda: default_rings(TWO, fabric().routes, [0, 1]), "group is [0, 1]", "(0, 1, 2)"),
        (lambda: DirectCircuits("c", "4", 2, 1e9, 0, 0), "servers is '4'", "of at least 1"),
        (lambda: DirectCircuits("c", 4, 2, "1Gbps", 0, 0), "is '1Gbps' bytes/s", "positive"),
        (lambda: DirectCircuits("c", 4, 2, 1e9, None, 0), "latency is None", "zero or more"),
        (lambda: WindowedCircuits("c", 4, 2, 1e9, 0, 0, "1s"), "window is '1s'", "positive time"),
        (lambda: run_circuits(5, tasks()), "fabric is 5", "DirectCircuits"),
        (lambda: run_circuits(CIRCUITS, None), "tasks is None", "a TaskGraph"),
        (lambda: run_circuits(CIRCUITS, tasks(), "1%"), "completion_tolerance is '1%'", "[0, 1)"),
        (lambda: run_circuits(CIRCUITS, tasks(), limit=None), "limit is None", "seconds"),
        (lambda: link_bytes(5, tasks()), "fabric is 5", "a Fabric"),
        (lambda: critical_path(tasks(), 5), "timeline is 5", "topoopt.fabric.simulate"),
        (lambda: exposed_communication(5, None), "tasks is 5", "the TaskGraph"),
        (lambda: fail_randomly(fabric(), None, 1, 2), "tasks is None", "a TaskGraph"),
        (lambda: fail_randomly(fabric(), tasks(), 1, 2, seed=-1), "seed is -1", "0 to"),
        (lambda: fail_randomly(fabric(), tasks(), 1, 2, progress=5), "progress is 5", "function"),
        (lambda: fail_each(shared_plan(), tasks()), "fabric is of type Plan", "a Fabric"),
        (lambda: random_cables(5, 1, RNG, both_ways=False), "network is 5", "a Network"),
        (lambda: random_cables(TWO, "1", RNG, both_ways=False), "count is '1'", "whole number"),
        (lambda: random_cables(TWO, 1, 0, both_ways=False), "rng is 0", "default_rng(seed)"),
        (lambda: random_ports(fabric(), 1, RNG, both_ways=False), "network is ", "a Network"),
        (lambda: random_ports(TWO, 1.5, RNG, both_ways=False), "count is 1.5", "whole number"),
        (lambda: without_servers(shared_plan(), (0,)), "fabric is ", "a Fabric"),
        (lambda: without_servers(fabric(), 3), "dead is 3", "(0, 3)"),
        (lambda: without_servers(fabric(), (0,), "rewired"), "how is 'rewired'", "new-rings"),
        (lambda: without_servers(fabric(), (0,), idle=("1",)), "one of idle is '1'", "(0, 3)"),
        (lambda: detoured(5, TWO, LOST), "routes is 5", "the Routes"),
        (lambda: detoured(fabric().routes, 5, LOST), "before is 5", "the Network"),
        (lambda: detoured(fabric().routes, TWO, TWO), "survivors is ", "fail_cables"),
        (lambda: fail_cables(5, np.array([0])), "network is 5", "a Network"),
        (lambda: fail_cables(TWO, np.array([-1])), "outside 0..1", "a failed cable"),
        (lambda: fail_cables(TWO, None), "cables is None", "links' numbers"),
        (lambda: fail_cables(TWO, [0.5]), "cables is", "links' numbers"),
        (lambda: repaired(fabric(), 5, "reroute"), "survivors is 5", "fail_cables"),
        (lambda: after_servers(shared_plan(), (0,)), "job is of type Plan", "rebuild(plan)"),
        (lambda: after_servers(rebuild(shared_plan()), (0,), steps=-1), "steps is -1", "zero or"),
        (lambda: after_servers(rebuild(shared_plan()), (0,), seed=-1), "seed is -1", "0 to"),
        (lambda: rebuild("plan.json"), "plan is 'plan.json'", "topoopt.load_plan"),
        (lambda: shared_plan().relative_time(5), "fabric is 5", "the name of"),
        (lambda: parse_plan(None), "plan is None", "a text"),
        (lambda: wire_tasks(5, CLUSTER), "tasks is 5", "a TaskGraph"),
        (lambda: wire_tasks(tasks(), 5), "cluster is 5", "topoopt.Cluster("),
        (lambda: wire_tasks(tasks(), CLUSTER, prices=5), "prices is 5", "a table"),
        (lambda: nvlink_server("h100", "8"), "gpus is '8'", "how many GPUs"),
        (lambda: share(5, CLUSTER), "jobs is 5", "('bert-16', 8)"),
        (lambda: Transport(timeout="10ms"), "timeout is '10ms'", "seconds"),
        (lambda: Transport(train_packets=None), "train_packets is None", "at least 1"),
        (lambda: build_fabric(5, 8, 2, 1e9), "fabric is 5", "'torus'"),
        (lambda: build_fabric("totient", "8", 2, 1e9), "servers is '8'", "a whole number"),
        (lambda: build_fabric("totient", 8, 2, "1Gbps"), "bandwidth is '1Gbps'", "bytes/s"),
        (lambda: build_fabric("torus", None, None, 1e9, dims=4), "dims is 4", "'4x4'"),
        (lambda: build_fabric("totient", 8, 2, 1e9, traffic=5), "traffic is 5", "traffic_of"),
        (lambda: build_fabric("expander", 8, 2, 1e9, seed=None), "seed is None", "whole number"),
        (lambda: build_fabric("expander", -1, 2, 1e9), "servers is -1", "at least 1"),
        (lambda: build_fabric("fat-tree", 8, 2, 1e9, oversubscription="2"), "is '2'", "or more"),
        (lambda: topology_report(TWO, 1e9, default_prices()), "built is ", "build_fabric"),
        (lambda: reported(bandwidth="1Gbps"), "bandwidth is '1Gbps'", "a positive number"),
        (lambda: reported(prices=None), "prices is None", "default_prices()"),
        (lambda: reported(traffic=EACH), "traffic is ", "traffic_of"),
        (lambda: select_circulant("8", 2), "servers is '8'", "a whole number"),
        (lambda: select_circulant(8, None), "count is None", "a whole number"),
        (lambda: select_circulant(8, 2, fixed=1), "fixed is 1", "such as (1, 3)"),
        (lambda: select_circulant(8, 2, demand=[1.0]), "demand is [1.0]", "an array"),
        (lambda: path_routing_tables(fabric().routes), "routing is ", "min_congestion"),
        (lambda: traffic_of(shared_plan()), "tasks is ", "a TaskGraph"),
        (lambda: rates_of(None), "accelerator is None", "'h100'"),
        (lambda: to.models.bert(name=5), "model name is 5", "a text"),
        (lambda: summarise("vgg16"), "graph is 'vgg16'", "get_model('vgg16')"),
        (lambda: profile_operators("vgg16", 2), "graph is 'vgg16'", "get_model('vgg16')"),
        (lambda: choose_degree(JOB, 4, objective="time", limits=None), "cluster is 4", "Cluster("),
        (lambda: validate(5), "data is 5", PATH),
        (lambda: validate(cases=5), "cases is 5", "'*dlrm*'"),
        (lambda: validate(models="fluid"), "models is 'fluid'", "('fluid', 'packet')"),
        (lambda: parse_network(5), "network is 5", "'RI(4)_FC(8)_SW(32)'"),
        (lambda: Question(budget=500e9), "budget is 5", "'500GB/s'"),
        (lambda: Question(cost=5), "cost is 5", "load_cost"),
        (lambda: Question(npu_cost="5"), "NPU cost is '5'", "zero or more"),
        (lambda: Question(constraints="b0 >= 2 b1"), "constraints is 'b0 >= ", "('b0 >= 2 b1',)"),
        (lambda: Question(objective="speed"), "objective is 'speed'", "time*cost or cost"),
        (lambda: Question(loop="both"), "loop is 'both'", "none or overlap"),
        (lambda: Question(partial=None), "partial is None", "usable or full"),
        (lambda: Question(deadline="1ms"), "deadline is '1ms'", "seconds"),
        (lambda: allocated(communicators=5), "communicators is 5", "hybrid_communicator("),
        (lambda: allocated(communicators=["x"]), "one of communicators is 'x'", "Communicator"),
        (lambda: allocated(weights=2), "weights is 2", "such as (1, 2)"),
        (lambda: allocated(weights=("2",)), "weight '2'", "a positive number"),
        (lambda: allocated(together="mean"), "together is 'mean'", "sum or max"),
        (lambda: allocated(relative_to="best"), "relative_to is 'best'", "optimum or equal"),
        (lambda: allocated(rates="25GB/s"), "rates is '25GB/s'", "('25,50,100GB/s',)"),
        (lambda: allocated(rates=(25e9,)), "one of rates is 25000", "'25,50,100GB/s'"),
        (lambda: builtin_workload("gpt-3", "8"), "tensor parallelism is '8'", "whole number"),
        (lambda: allocate_bandwidth(5, GPT3, Question()), "network is 5", "parse_network"),
        (lambda: allocate_bandwidth(RINGS, "gpt-3", Question()), "workload is 'gpt-3'", "builtin"),
        (lambda: allocate_bandwidth(RINGS, [], Question()), "workloads is empty", "at least one"),
        (lambda: allocate_bandwidth(RINGS, GPT3, None), "question is None", "Question(budget="),
        (lambda: min_congestion(5, EACH), "network is 5", "a Network"),
        (lambda: min_congestion(TWO, EACH, rounds=None), "rounds is None", "whole number"),
        (lambda: fail_servers(rebuild(shared_plan()), 1.0, 2), "count is 1.0", "whole number"),
        (lambda: min_congestion(TWO, EACH, accuracy="1%"), "accuracy is '1%'", "a fraction"),
        (lambda: min_congestion(TWO, EACH, start=5), "start is 5", "min_congestion returned"),
        (lambda: load_workload(5), "workload is 5", PATH),
        (lambda: replay_fabric(5, "ideal"), "workload is 5", "load_workload"),
        (lambda: load_network(5), "network file is 5", PATH),
        (lambda: save_network(5, "x.json"), "network is 5", "load_network"),
        (lambda: Schedule(bucket_bytes="25MB"), "bucket size is '25MB'", "a positive size"),
        (lambda: Schedule(microbatches=1.5), "microbatches is 1.5", "a whole number"),
    ],
)
def test_another_kind_of_object_is_named_with_what_is_wanted(call, named, wanted):
    with pytest.raises(to.InputError) as refused:
        call()
    message = str(refused.value)
    assert named in message and wanted in message and "\n" not in message


def test_a_near_name_of_the_package_is_suggested():
    with pytest.raises(AttributeError, match="did you mean 'co_optimize'"):
        _ = to.optimize
    assert not hasattr(to, "zzz")


def test_fields_named_as_arguments_are_replaced():
    assert to.load_transformer("gpt2", name="mine").name == "mine"


def test_numbers_are_told_from_what_looks_like_them():
    assert [is_number(value) for value in (1, 0.5, True, "1", None)] == [True, True, *[False] * 3]
    with pytest.raises(to.InputError, match="rate is 0; give a positive number"):
        check_number("rate", 0)
    assert several("counts", range(2), "some") == (0, 1)
    assert type(whole("count", np.int64(3), "some")) is int


HALF = np.float32(0.5)
NUMBERED = {
    "server": (to.Server, {"gpus": np.int64(2), "intra_bandwidth": np.float32(2**34)}),
    "roofline": (to.RooflineModel, {"efficiency": HALF, "launch_overhead": np.float32(0)}),
    "accelerator": (partial(replace, A100), {"memory_bytes": np.float32(2**36)}),
    "options": (to.SearchOptions, {"steps": np.int64(5), "memory_bytes": np.float32(2**30)}),
    "seconds": (to.SearchOptions, {"seconds": HALF, "workers": np.int8(2)}),
    "prices": (partial(PriceTable, "x"), {"usd": {**USD, "nic": ((1e9, HALF),)}}),
    "limits": (to.Limits, {"cost_usd": np.int64(9), "ports": np.int32(8)}),
    "cluster": (to.Cluster, {"servers": np.int64(4), "degree": np.uint8(2), "bandwidth": "1Gbps"}),
    "reconfiguration": (Reconfiguration, {"delay": np.float32(2**-10), "window": HALF}),
    "schedule": (Schedule, {"bucket_bytes": np.float32(8), "microbatches": np.int64(2)}),
    "stack": (partial(replace, get_stack("nemo")), {"sending": HALF, "gradient_bytes": np.int8(4)}),
    "transformer": (partial(to.load_transformer, "llama3-8b"), {"layers": np.int64(3)}),
    "model": (to.models.dlrm, {"tables": np.int64(3), "rows": np.int32(9)}),
    "preset": (partial(to.models.get_model, "dlrm-16"), {"tables": np.int64(3)}),
    "graph": (partial(to.models.get_model, "gpt2"), {"batch_per_gpu": np.int64(3)}),
}


def numbers_of(value):
    if isinstance(value, dict):
        value = list(value.values())
    if is_dataclass(value):
        value = [getattr(value, each.name) for each in fields(value)]
    if isinstance(value, list | tuple):
        return [number for one in value for number in numbers_of(one)]
    return [value] if is_number(value) else []


def test_graphs_of_one_s_own_take_numbers_of_numpy():
    built = GraphBuilder("mine", np.int64(8), element_bytes=np.int32(2))
    dense(built, "layer", built.input(4), 4)
    graph = built.build()
    assert type(graph.batch_per_gpu) is type(graph.element_bytes) is int


def graph_of_layers(number):
    """Return a graph of all layers that take numbers, and these as a type makes them."""
    built = GraphBuilder("mine", 8)
    image = conv2d(built, "conv", built.input(number(3), number(8), number(8)), number(4),
                   number(3), stride=number(1), padding=number(1))  # fmt: skip
    dense(built, "out", flatten(built, "flat", pool(built, "pool", image, number(2))), number(4))
    words = embedding(built, "words", number(16), number(8), positions=number(4))
    dense(built, "head", attention(built, "attention", words, heads=number(2)), number(2))
    return built.build()


@pytest.mark.parametrize("number", [np.int64, np.int32])
def test_layers_take_numbers_of_numpy(number):
    graph = graph_of_layers(number)
    assert graph == graph_of_layers(int)
    counts = [n for op in graph.operators for n in (*op.output_shape, op.parameters)]
    counts += [split.extent for op in graph.operators for split in op.splits]
    assert {type(count) for count in counts} == {int}


@pytest.mark.parametrize("kind", NUMBERED)
def test_numbers_of_numpy_become_those_of_python(kind):
    # Files of plans cannot hold others, which was found when the search was over.
    make, given = NUMBERED[kind]
    made = make(**given)
    assert not [n for n in numbers_of(made) if isinstance(n, np.generic)]
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in given.items()}
    assert made == make(**plain)


def test_a_plan_asked_for_in_numbers_of_numpy_can_be_saved(tmp_path):
    server = to.Server(gpus=np.int64(2))
    compute = to.RooflineModel(server, efficiency=HALF)
    plan = to.co_optimize(to.Job(MODEL, server=server, compute=compute), CLUSTER, FEW, baselines=())
    plan.save(tmp_path / "plan.json")
    assert to.load_plan(tmp_path / "plan.json") == plan


def test_a_grid_priced_in_numbers_of_numpy_has_a_store(tmp_path):
    found = explored(options=FEW, server_usd=np.float32(10), store=tmp_path / "store.json")
    assert type(found.designs[0].point.cost_usd) is float


@pytest.mark.parametrize("kind", [list, np.array, iter])
def test_choices_are_any_series(kind):
    assert Choices(tensor=kind([1, 2])) == Choices(tensor=(1, 2))
    assert Choices(recompute=["none"]) == Choices(recompute=("none",))


def test_a_fabric_compared_with_is_known_by_its_name():
    plan = shared_plan()
    for name, base in plan.baselines.items():
        assert plan.relative_time(name) == plan.relative_time(base)


def test_a_verdict_is_a_condition():
    assert to.verify_plan(shared_plan())
    assert not to.verify_plan(replace(shared_plan(), bandwidth_tax=0.5))


def test_whole_numbers_of_numpy_are_whole_numbers():
    cluster = to.Cluster(np.int64(4), np.int32(2), "100Gbps")
    options = to.SearchOptions(steps=np.int64(5), workers=np.int64(1))
    assert (cluster, options) == (
        to.Cluster(4, 2, "100Gbps"), to.SearchOptions(steps=5, workers=1),
    )  # fmt: skip
    job = to.Job(to.load_transformer("llama3-8b"), global_batch=np.int64(64))
    kinds = {type(n) for n in (cluster.servers, cluster.degree, options.steps, job.global_batch)}
    assert kinds == {int}
