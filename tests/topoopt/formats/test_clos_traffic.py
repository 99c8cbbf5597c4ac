"""Job files and traffic files of Clos experiments."""

import numpy as np
import pytest
from clos_data import clos_data

from codesign_base import InfeasibleError, InputError
from routing.clos.fabric import Clos
from topoopt.clos.jobs_file import load_jobs
from topoopt.clos.presets import CLOS_MODELS, draw_jobs
from topoopt.formats.clos_traffic import load_traffic_file, load_traffic_folder

HEAD = "#src dst src_tor dst_tor start_time flow_size compute_time stage_index\n"
# 2 ToRs x 2 spines: hosts 4, 5 at ToR 0 and 6, 7 at ToR 1.
RING = "4 6 0 1 1000 50 2000000000 0\n6 4 1 0 1000 50 2000000000 0\n"
SECOND = "7 5 1 0 1000 50 2000000000 1\n5 7 0 1 1000 50 2000000000 1\n"
SMALL = Clos.uniform(2, 2)


DATA = clos_data()
FLOORS = {
    "BLOOM": {2: 1.173, 4: 1.760, 8: 2.053},
    "GPT_3": {2: 0.875, 4: 1.313, 8: 1.531},
    "LLaMA2_70B": {2: 0.175, 4: 0.263, 8: 0.306},
}


@pytest.mark.skipif(not DATA.is_dir(), reason="needs the published traffic files")
def test_published_files_load():
    clos = Clos.uniform(64, 32)
    folders = sorted(DATA.glob("*/ring_size_*"))
    assert folders
    for folder in folders:
        replicas = int(folder.name.rpartition("_")[2])
        jobs = load_traffic_folder(folder, clos)
        assert len(jobs) == int(folder.parent.name.rpartition("_")[2])
        assert [job.name.split("-")[0] for job in jobs] == [f"job_{i}" for i in range(len(jobs))]
        for job in jobs:
            model = job.name.split("-")[1]
            preset = CLOS_MODELS[model.lower().replace("_", "-")]
            assert (job.rings, job.replicas) == (preset.group, replicas)
            assert job.compute_time == pytest.approx(preset.compute_time, rel=1e-15)
            # Published to the millisecond, halves rounded up.
            assert f"{job.floor(12.5e9) + 1e-9:.3f}" == f"{FLOORS[model][replicas]:.3f}"


def write(folder, text, name="job_0-x.txt"):
    (folder / name).write_text(text)
    return folder / name


def test_a_file_becomes_rings(tmp_path):
    job = load_traffic_file(write(tmp_path, HEAD + RING + SECOND), SMALL)
    assert job.nics.tolist() == [[0, 2], [3, 1]]
    assert job.flow_bytes == 50.0
    assert job.compute_time == 2.0
    assert job.start_time == pytest.approx(1e-6)


def test_files_are_ordered_by_their_numbers(tmp_path):
    for number, ring in ((10, RING), (2, SECOND)):
        write(tmp_path, HEAD + ring, f"job_3²{number}-x.txt")
    assert [job.name for job in load_traffic_folder(tmp_path, SMALL)] == ["job_3²2-x", "job_3²10-x"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("4 6 0 1 1000 50 0 0\n", "the first line must be"),
        (HEAD, "lists no flows"),
        (HEAD + "4 6 0 1 1000 50 0\n", "line 2: 7 columns"),
        (HEAD + RING.replace("50", "5.5"), "line 2: flow_size is '5.5'"),
        (HEAD + RING.replace("50", "-5"), "line 2: flow_size is '-5'"),
        (HEAD + RING.replace("50", "0"), "flow_bytes is 0"),
        (HEAD + RING.replace("4 6 0 1", "4 9 0 1"), "dst is 9; hosts of 2 ToRs and 2 spines are"),
        (HEAD + RING.replace("4 6 0 1", "4 6 1 1"), "src_tor is 1, but host 4 is at ToR 0"),
        (HEAD + RING + SECOND.replace("50", "60"), "line 4: flow_size is 60"),
        (HEAD + RING + SECOND.splitlines()[0] + "\n", "stage 1 are not one closed ring"),
        (HEAD + RING + RING, "line 4: host 4 sends twice in stage 0"),
        (HEAD + RING + RING.replace(" 0\n", " 1\n"), "occurs 2 times"),
        (HEAD + "4 4 0 0 0 5 0 0\n", "not one closed ring"),
        ("\n", "is empty"),
    ],
)
def test_malformed_files_are_one_clear_error(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(InputError, match=message) as error:
        load_traffic_file(path, SMALL)
    assert str(path) in str(error.value).replace("'", "")


def test_malformed_folders(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        load_traffic_folder(tmp_path / "absent", SMALL)
    with pytest.raises(InputError, match=r"holds no job files \(.*; give their folder$"):
        load_traffic_folder(tmp_path, SMALL)
    write(tmp_path, HEAD + RING, "a.txt")
    write(tmp_path, HEAD + RING, "b.txt")
    with pytest.raises(InputError, match="'a' and 'b' both use host 4"):
        load_traffic_folder(tmp_path, SMALL)


JOBS = """
jobs:
  - {model: bloom, replicas: 4}
  - {model: llama2-70b, replicas: 2, count: 2, placement: packed, start_time: 1s}
  - name: mine
    parameters: 13_000_000_000
    element_bytes: 2
    tensor: 4
    pipeline: 2
    replicas: 2
    compute_time: 400ms
    placement: [["0:0-6", "3:9"], ["1:0-7"]]
"""


def test_a_jobs_file_places_its_jobs(tmp_path):
    clos = Clos.uniform(64, 32)
    path = write(tmp_path, JOBS, "jobs.yaml")
    bloom, first, second, mine = load_jobs(path, clos, seed=1)
    assert [job.name for job in (bloom, first, second, mine)] == [
        "bloom", "llama2-70b-1", "llama2-70b-2", "mine",
    ]  # fmt: skip
    assert mine.nics[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 3 * 32 + 9]
    assert mine.flow_bytes == 13e9 * 2 / 8 / 2
    assert (mine.compute_time, first.start_time) == (0.4, 1.0)
    assert first.nics.min() == 7 or bloom.nics.min() < 7
    nics = np.concatenate([job.nics.ravel() for job in (bloom, first, second, mine)])
    assert np.unique(nics).size == nics.size
    again = load_jobs(path, clos, seed=1)
    other = load_jobs(path, clos, seed=2)
    assert np.array_equal(again[0].nics, bloom.nics)
    assert not np.array_equal(other[0].nics, bloom.nics)


def test_json_holds_the_same(tmp_path):
    path = write(tmp_path, '{"jobs": [{"model": "gpt-3", "replicas": 2}]}', "jobs.json")
    (job,) = load_jobs(path, Clos.uniform(64, 32))
    assert (job.name, job.flows) == ("gpt-3", 128)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("jobs: []", "field 'jobs' is"),
        ("- a", "expected the field jobs"),
        ("job: []", "'jobs' is missing|unknown field 'job'"),
        ("jobs: [{model: bloom}]", "job 1: field 'replicas' is missing"),
        ("jobs: [{model: blom, replicas: 2}]", "model 'blom' is unknown; choose one of gpt-3"),
        ("jobs: [{model: bloom, replica: 2, replicas: 2}]", "job 1: unknown field 'replica'"),
        ("jobs: [{model: bloom, replicas: 1}]", "field 'replicas' is 1"),
        ("jobs: [{model: bloom, replicas: two}]", "field 'replicas' is 'two'"),
        ("jobs: [{tensor: 2, replicas: 2, compute_time: 1s}]", "'parameters' is missing"),
        ("jobs: [{parameters: 1.0, replicas: 2}]", "'compute_time' is missing"),
        (
            "jobs: [{parameters: 1.5, replicas: 2, compute_time: 1s}]",
            "job 1: field 'parameters' is 1.5; give a whole number of at least 1",
        ),
        ("jobs: [{parameters: 0, replicas: 2}]", "'parameters' is 0; give a whole number of at"),
        ("jobs: [{model: bloom, parameters: -4, replicas: 2}]", "is -4; give a whole number"),
        ("jobs: [{parameters: .inf, replicas: 2}]", "field 'parameters' is inf"),
        ("jobs: [{model: bloom, replicas: 2, compute_time: 5}]", "field 'compute_time' is 5"),
        ("jobs: [{model: bloom, replicas: 2, start_time: 5 parsecs}]", "unknown unit"),
        ("jobs: [{model: bloom, replicas: 2, placement: tight}]", "placement is not packed"),
        (
            "jobs: [{parameters: 8.0, compute_time: 1s, replicas: 2, placement: [['0:0']]}]",
            "placement lists 1 replica of 2",
        ),
        (
            "jobs: [{parameters: 8.0, compute_time: 1s, replicas: 2, placement: [['0:0'],['0']]}]",
            "placement '0' is not",
        ),
        (
            "jobs: [{parameters: 8.0, compute_time: 1s, replicas: 2, "
            "placement: [['0:0'],['9:0']]}]",
            "placement '9:0' lies outside the fabric",
        ),
        (
            "jobs: [{parameters: 8.0, compute_time: 1s, replicas: 2, "
            "placement: [['0:7-0'],['1:0-7']]}]",
            "placement '0:7-0' ends before it begins; give tor:first-last",
        ),
        (
            "jobs: [{parameters: 8.0, compute_time: 1s, replicas: 2, "
            "placement: [['0:0'],['1:0-1']]}]",
            "gives replica 2 2 NICs; a copy needs 1",
        ),
        (
            "jobs: [{parameters: 8.0, compute_time: 1s, replicas: 2, count: 2, "
            "placement: [['0:0'],['1:0']]}]",
            "count is 2, but the NICs of its placement are for one job; list each",
        ),
        (
            "jobs: [{name: a, parameters: 8.0, compute_time: 1s, replicas: 2, "
            "placement: [['0:0'],['1:0']]}, {name: b, parameters: 8.0, compute_time: 1s, "
            "replicas: 2, placement: [['0:0'],['1:1']]}]",
            "NIC 0:0 belongs to another job",
        ),
        ("jobs: [{model: bloom, model: bloom, replicas: 2}]", "key 'model' occurs twice"),
        ("jobs: [", "not valid YAML"),
    ],
)
def test_malformed_jobs_files_are_one_clear_error(tmp_path, text, message):
    path = write(tmp_path, text, "jobs.yaml")
    with pytest.raises(InputError, match=message) as error:
        load_jobs(path, SMALL)
    assert "jobs.yaml" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_whole_number_of_parameters_may_have_an_exponent(tmp_path):
    text = "jobs: [{{parameters: {}, compute_time: 1s, replicas: 2}}]"
    for number in ("1_000_000_000", "1.0e+9"):
        (job,) = load_jobs(write(tmp_path, text.format(number), "jobs.yaml"), SMALL)
        assert job.flow_bytes == 2e9


def test_jobs_that_do_not_fit_are_infeasible(tmp_path):
    path = write(tmp_path, "jobs: [{model: bloom, replicas: 2}]", "jobs.yaml")
    with pytest.raises(InfeasibleError, match="job 1: 48 x 2 accelerators do not fit"):
        load_jobs(path, SMALL)


def test_drawn_jobs_are_seeded():
    clos = Clos.uniform(64, 32)
    one, same, other = (draw_jobs(clos, 3, 8, seed) for seed in (0, 0, 1))
    assert all(np.array_equal(a.nics, b.nics) for a, b in zip(one, same, strict=True))
    assert any(a.nics.shape != b.nics.shape or not np.array_equal(a.nics, b.nics)
               for a, b in zip(one, other, strict=True))  # fmt: skip
