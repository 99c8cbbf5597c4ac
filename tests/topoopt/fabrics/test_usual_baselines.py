"""What plans are compared with unasked, and what they say of fabrics left out."""

import pytest

import topoopt as to
from codesign_base import InfeasibleError
from topoopt.fabrics.baselines import EXPANDER_UP_TO, PLAN_BASELINES, usual_baselines
from topoopt.plan.records import left_out_notes


def test_an_expander_of_thousands_of_servers_is_left_out_and_named():
    assert usual_baselines(EXPANDER_UP_TO) == PLAN_BASELINES
    usual = usual_baselines(EXPANDER_UP_TO + 1)
    assert usual == ("ideal-switch", "fat-tree")
    (note,) = left_out_notes(4096, usual)
    assert "expander" in note and "4,096" in note


def test_nothing_is_said_of_fabrics_that_were_asked_for_or_left_out_by_name():
    assert left_out_notes(EXPANDER_UP_TO, PLAN_BASELINES) == []
    assert left_out_notes(4096, PLAN_BASELINES) == []
    assert left_out_notes(4096, ()) == []
    assert left_out_notes(4096, ("fat-tree",)) == []


@pytest.mark.parametrize("given, asked", [(None, PLAN_BASELINES), ((), ()), (["fat-tree"],) * 2])
def test_a_sweep_compares_with_what_is_asked_and_unasked_with_the_usual(monkeypatch, given, asked):
    seen = []

    def stop(*arguments, **options):
        seen.append(tuple(options["baselines"]))
        raise InfeasibleError("enough is known")

    monkeypatch.setattr("topoopt.codesign.sweep.co_optimize", stop)
    job = to.Job(to.models.dlrm(tables=4, batch_per_gpu=32))
    options = {} if given is None else {"baselines": given}
    to.sweep(job, to.Cluster(servers=4, degree=2, bandwidth="100Gbps"), **options)
    assert seen == [tuple(asked)]
