"""The encoding, against the runtime of the flatbuffers package in both directions."""

import numpy as np
import pytest
from fbuf_oracle import (
    data_directory,
    differences,
    document_of,
    oracle_read,
    oracle_write,
    small_document,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from topoopt.formats.fbuf_read import parse_fbuf, read_fbuf
from topoopt.formats.fbuf_write import save_fbuf, write_fbuf

DATA = data_directory()
single = st.floats(0, 1e9, width=32)
word = st.integers(0, 2**64 - 1)


@st.composite
def documents(draw):
    """A legal file of a few nodes, tasks and routes."""
    nodes = draw(st.integers(1, 6))
    switches = draw(st.integers(0, 2))
    total = nodes + switches
    pairs = [(a, b) for a in range(total) for b in range(a)]
    conn = [(a, b, draw(st.integers(1, 9))) for a, b in pairs if draw(st.booleans())]
    device_ids = draw(st.lists(word, min_size=1, max_size=5, unique=True))
    devices = [(0, device_ids[0], draw(st.integers(0, nodes - 1)), draw(word), draw(word))]
    for ident in device_ids[1:]:
        kind = draw(st.sampled_from((0, 1, 12, 14)))
        ends = draw(st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)))
        devices.append(
            (kind, ident, draw(st.integers(0, nodes - 1)), ends[0] * total + ends[1], draw(word))
        )
    computers = [d[1] for d in devices if d[0] < 2]
    carriers = [d[1] for d in devices if d[0] >= 2]
    ids = draw(st.lists(word, max_size=8, unique=True))
    tasks = []
    for at, ident in enumerate(ids):
        kind = draw(st.sampled_from((0, 1, 3, 4, 6) + ((2, 5) if carriers else ())))
        device = draw(st.sampled_from(carriers if kind in (2, 5) else computers))
        nexts = [i for i in ids[at + 1 :] if draw(st.booleans())]
        if kind == 6:
            device = 0 if 0 not in device_ids else device
            nexts = draw(st.lists(st.integers(0, nodes - 1), min_size=1, unique=True))
        tasks.append((kind, ident, device, draw(single), draw(word), nexts))
    routes = []
    for a in range(total):
        for b in range(total):
            if draw(st.booleans()):
                middle = draw(st.lists(st.integers(0, total - 1), max_size=3))
                paths = [([a, *middle, b], draw(st.floats(0, 1, width=32)))] * draw(
                    st.integers(0, 2)
                )
                routes.append((a, b, paths))
    sizes = draw(st.lists(st.integers(2, max(nodes, 2)), unique=True)) if nodes > 1 else []
    jump = st.integers(-(2**31), 2**31 - 1)
    rings = [(s, draw(st.lists(st.lists(jump, max_size=4), max_size=3))) for s in sizes]
    names = draw(st.lists(st.text(max_size=9), max_size=3))
    return {
        "header": (
            draw(st.integers(0, 2**32 - 1)),
            nodes,
            switches,
            *(draw(single) for _ in "abc"),
        ),
        "conn": conn,
        "ops": [(draw(word), draw(word), name) for name in names],
        "tasks": tasks,
        "devices": devices,
        "routes": routes,
        "rings": rings,
    }


def plain(document):
    """Return a document with lists and tuples alike."""
    if isinstance(document, dict):
        return {key: plain(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [plain(value) for value in document]
    return document


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(documents(), st.booleans())
def test_what_flatbuffers_writes_is_read(document, force_defaults):
    file = parse_fbuf(oracle_write(document, force_defaults))
    assert plain(document_of(file)) == plain(document)


@settings(max_examples=60, deadline=None)
@given(documents())
def test_flatbuffers_reads_what_is_written(document):
    file = parse_fbuf(oracle_write(document))
    written = write_fbuf(file)
    assert plain(oracle_read(written)) == plain(document)
    assert differences(parse_fbuf(written), file) == []


def test_units_are_those_of_the_file():
    file = parse_fbuf(oracle_write(small_document()))
    assert (file.gpus_per_node, file.nodes, file.switches) == (4, 2, 0)
    assert file.intergpu_bandwidth == 25e9
    assert file.net_bandwidth == 12.5e9
    assert file.task_runtime[0] == 0.5e-3
    assert file.task_bytes[5] == 1_000_000
    assert file.device_bytes_per_ms[3] == 25_000_000
    assert file.op_name == ("Dense_100", "")


def test_every_value_is_aligned_to_its_size():
    """Where other readers load words directly, a word off its boundary is undefined."""
    data = write_fbuf(parse_fbuf(oracle_write(small_document())))
    # The reader refuses words off their boundary; cut in front, every word is off it.
    with pytest.raises(ValueError):
        parse_fbuf(data[4:])
    assert oracle_read(data)["tasks"][0][1] == 1


def test_saved_files_are_whole_or_not_there(tmp_path):
    file = parse_fbuf(oracle_write(small_document()))
    save_fbuf(file, tmp_path / "a.fbuf")
    assert differences(read_fbuf(tmp_path / "a.fbuf"), file) == []
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.fbuf"]


@pytest.mark.skipif(DATA is None, reason="the published task graphs are not here")
@pytest.mark.parametrize("name", ["100dlrm_16", "100candle_32", "400transformer_16", "100vgg_16"])
def test_published_files_equal_the_oracle(name):
    data = (DATA / f"{name}.fbuf").read_bytes()
    file = parse_fbuf(data)
    expected = plain(oracle_read(data))
    assert plain(document_of(file)) == expected
    written = write_fbuf(file)
    assert plain(oracle_read(written)) == expected
    assert differences(parse_fbuf(written), file) == []


def test_arrays_cannot_be_changed():
    file = parse_fbuf(oracle_write(small_document()))
    with pytest.raises(ValueError):
        file.task_runtime[0] = 1.0
    assert file.nexts(0).tolist() == [2, 3]
    assert file.ring_jumps() == {2: ((1,), (1,))}
    assert file.task_id.dtype == np.uint64
