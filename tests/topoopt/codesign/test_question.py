"""What files of answers belong to."""

import json

import pytest

import topoopt as to
from topoopt.codesign import question
from topoopt.codesign.question import numbers_of, question_of

JOBS = [
    to.Job(to.models.dlrm(tables=4, batch_per_gpu=32)),
    to.Job(to.load_transformer("llama3-8b"), global_batch=64),
]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.kind)
def test_other_code_is_another_question(job, monkeypatch):
    options = to.SearchOptions()
    asked = question_of(job, options, 0, None)
    assert json.loads(json.dumps(asked)) == json.loads(
        json.dumps(question_of(job, options, 0, None))
    )
    assert asked != question_of(job, options, 1, None)
    monkeypatch.setattr(question, "package_hash", lambda: "edited")
    assert asked != question_of(job, options, 0, None)


def test_clusters_are_told_apart_by_numbers_and_not_by_how_they_are_written():
    one = to.Cluster(servers=4, degree=2, bandwidth="100Gbps", latency="1us")
    same = to.Cluster(servers=4, degree=2, bandwidth=12.5e9, latency=1e-6)
    assert numbers_of(one) == numbers_of(same)
    assert numbers_of(one) != numbers_of(to.Cluster(servers=4, degree=2, bandwidth="101Gbps"))
