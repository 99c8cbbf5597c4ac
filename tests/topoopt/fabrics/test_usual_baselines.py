"""What plans are compared with unasked, and what they say of fabrics left out."""

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
