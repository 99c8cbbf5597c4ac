"""Public names given another kind of object: one sentence that names it and what is wanted."""

import pytest
from small_plans import shared_plan, small_dlrm

import topoopt as to
from codesign_base.arguments import check_number, is_number, several

JOB = to.Job(small_dlrm())
CLUSTER = to.Cluster(4, 2, "100Gbps")
GRID = to.Grid((4,), (2,), ("100Gbps",))
PATH = "its path, as a text or a pathlib.Path"


def optimized(**given):
    return to.co_optimize(JOB, CLUSTER, to.SearchOptions(steps=0, confirm="none"), **given)


def explored(**given):
    return to.explore(JOB, GRID, **given)


@pytest.mark.parametrize(
    ("call", "named", "wanted"),
    [
        (lambda: to.load_transformer(5), "name_or_path is 5", "the path of a config.json"),
        (lambda: to.load_model(5), "model file is 5", PATH),
        (lambda: to.load_plan(None), "plan file is None", PATH),
        (lambda: to.verify_plan(b"x"), "plan file is b'x'", PATH),
        (lambda: to.write_report(shared_plan(), 5), "report is 5", PATH),
        (lambda: to.ProfileModel(5), "profile is 5", PATH),
        (lambda: to.ProfileModel("x", roofline=5), "roofline is 5", "a topoopt.RooflineModel"),
        (lambda: to.ProfileModel("x", server=5), "server is 5", "a topoopt.Server"),
        (lambda: to.RooflineModel(5), "server is 5", "a topoopt.Server"),
        (lambda: to.RooflineModel(efficiency="1"), "efficiency is '1'", "a fraction above 0"),
        (lambda: to.RooflineModel(launch_overhead=[]), "launch_overhead is []", "zero or more"),
        (lambda: to.RooflineModel(precision=[]), "unknown precision []", "choose one of"),
        (lambda: to.Server(intra_bandwidth=None), "intra_bandwidth is None", "bytes/s"),
        (lambda: to.Job(small_dlrm(), compute=5), "compute is 5", "a topoopt.RooflineModel"),
        (lambda: to.SearchOptions(reconfiguration=5), "reconfiguration is 5", "Reconfiguration()"),
        (lambda: to.SearchOptions(parameter_splits="no"), "parameter_splits is 'no'", "or False"),
        (lambda: to.Grid(("a",), (2,), ("100Gbps",)), "one of servers is 'a'", "(8, 16)"),
        (lambda: to.Grid((4,), b"x", ("100Gbps",)), "degrees is b'x'", "(2, 4)"),
        (lambda: to.models.dlrm(lookup_skew="1"), "lookup_skew is '1'", "an exponent"),
        (lambda: to.models.dlrm(dims=5), "dims is 5", "a whole number for each table"),
        (lambda: optimized(baselines=(5,)), "one of baselines is 5", "several names"),
        (lambda: optimized(checkpoint=5), "checkpoint is 5", PATH),
        (lambda: optimized(progress=5), "progress is 5", "a function"),
        (lambda: to.compare(JOB, CLUSTER, 5), "options is 5", "a topoopt.SearchOptions"),
        (lambda: to.compare(JOB, CLUSTER, fabrics=(5,)), "one of fabrics is 5", "several names"),
        (lambda: to.compare(JOB, CLUSTER, plan_file=5), "plan_file is 5", PATH),
        (lambda: explored(options=5), "options is 5", "a topoopt.SearchOptions"),
        (lambda: explored(global_batch="8"), "global_batch is '8'", "a whole number"),
        (lambda: explored(server_usd="8"), "server_usd is '8'", "US dollars"),
        (lambda: explored(least_gain=None), "least_gain is None", "a share"),
        (lambda: explored(store=5), "store is 5", PATH),
        (lambda: explored(save_plan=5), "save_plan is 5", "a function"),
        (lambda: explored(progress=5), "progress is 5", "a function"),
    ],
)
def test_another_kind_of_object_is_named_with_what_is_wanted(call, named, wanted):
    with pytest.raises(to.InputError) as refused:
        call()
    message = str(refused.value)
    assert named in message and wanted in message and "\n" not in message


@pytest.mark.parametrize(
    ("given", "named", "wanted"),
    [
        ({"clusters": (5,)}, "one of clusters is 5", "Cluster"),
        ({"seeds": 5}, "seeds is 5", "several whole numbers"),
        ({"folder": 5}, "folder is 5", PATH),
        ({"baselines": 5}, "baselines is 5", "several names"),
        ({"prices": 5}, "prices is 5", "a table"),
        ({"progress": 5}, "progress is 5", "a function"),
    ],
)
def test_so_is_that_of_a_sweep(given, named, wanted):
    pytest.importorskip("pandas")
    with pytest.raises(to.InputError) as refused:
        to.sweep(**{"jobs": JOB, "clusters": CLUSTER, **given})
    assert named in str(refused.value) and wanted in str(refused.value)


def test_fields_named_as_arguments_are_replaced():
    assert to.load_transformer("gpt2", name="mine").name == "mine"


def test_numbers_are_told_from_what_looks_like_them():
    assert [is_number(value) for value in (1, 0.5, True, "1", None)] == [True, True, *[False] * 3]
    with pytest.raises(to.InputError, match="rate is 0; give more"):
        check_number("rate", 0, "more")
    assert several("counts", range(2), "some") == (0, 1)
