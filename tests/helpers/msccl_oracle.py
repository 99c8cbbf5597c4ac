"""An interpreter of MSCCL algorithm files, written apart from what writes them."""

from collections import Counter, deque
from xml.etree import ElementTree

import numpy as np


def execute(text, buffers):
    """Run an algorithm file, and return the chunks sent from rank to rank.

    ``buffers`` are by rank and letter. Thread blocks take their steps in order; a send goes into
    the queue of (sender, receiver, channel), a receive waits for it, and a step that depends on
    another waits until that one is done.
    """
    top = ElementTree.fromstring(text)
    queues, sent, done, blocks, ends = {}, Counter(), set(), [], Counter()
    for gpu in top.iter("gpu"):
        for block in gpu.iter("tb"):
            rank, channel = int(gpu.get("id")), block.get("chan")
            to, come = int(block.get("send")), int(block.get("recv"))
            ends[rank, to, channel, "out"] += to >= 0
            ends[come, rank, channel, "in"] += come >= 0
            name = rank, int(block.get("id"))
            blocks.append((name, (rank, to, channel), (come, rank, channel), deque(block)))
    assert max(ends.values()) == 1, "a connection of two thread blocks"
    moved = True
    while moved:
        moved = False
        for name, out, into, steps in blocks:
            rank = name[0]
            while steps:
                step = steps[0]
                kind = step.get("type")
                wait = rank, int(step.get("depid")), int(step.get("deps"))
                if wait[1] >= 0 and wait not in done:
                    break
                source = buffers[rank][step.get("srcbuf")], int(step.get("srcoff"))
                target = buffers[rank][step.get("dstbuf")], int(step.get("dstoff"))
                count = int(step.get("cnt"))
                if kind == "cpy":
                    for i in range(count):
                        target[0][target[1] + i] = source[0][source[1] + i]
                elif kind == "s":
                    value = source[0][source[1] : source[1] + count].copy()
                    queues.setdefault(out, deque()).append(value)
                elif kind != "nop":
                    if not queues.get(into):
                        break
                    value = queues[into].popleft()
                    assert len(value) == count
                    if kind in ("rrs", "rrc", "rrcs"):
                        value = value + source[0][source[1] : source[1] + count]
                    if kind in ("r", "rcs", "rrc", "rrcs"):
                        target[0][target[1] : target[1] + count] = value
                    if kind in ("rcs", "rrs", "rrcs"):
                        queues.setdefault(out, deque()).append(value)
                if kind in ("s", "rcs", "rrs", "rrcs"):
                    assert out[1] >= 0
                    sent[out[:2]] += count
                if step.get("hasdep") == "1":
                    done.add((*name, int(step.get("s"))))
                steps.popleft()
                moved = True
    assert not any(steps for *_, steps in blocks), "a step waits for ever"
    assert not any(queues.values())
    return sent


def assert_right(text, seed=0, root=0):
    """Run a file on random numbers, check what every rank ends with, and return what was sent.

    In place: of an AllReduce all is the sum, of a ReduceScatter each rank's part of it, and an
    AllGather begins with each rank's part, and with nothing else that counts. Of an all-to-all
    each rank ends with its part of every rank's, of a Broadcast with the root's, and of a Reduce
    the root with the sum.
    """
    top = ElementTree.fromstring(text)
    size, chunks = int(top.get("ngpus")), int(top.get("nchunksperloop"))
    per = chunks // size
    before = np.random.default_rng(seed).integers(0, 1000, (size, chunks))
    letter = "o" if top.get("coll") in ("allgather", "broadcast") else "i"
    assert all(int(gpu.get(f"{letter}_chunks")) == chunks for gpu in top)
    buffers = [{letter: before[rank].copy()} for rank in range(size)]
    if top.get("coll") == "alltoall":
        for gpu, each in zip(top, buffers, strict=True):
            each["o"] = np.full(chunks, -1)
            each["s"] = np.full(int(gpu.get("s_chunks")), -1)
    sent = execute(text, buffers)
    for rank in range(size):
        own = slice(rank * per, (rank + 1) * per)
        found = buffers[rank]
        if top.get("coll") == "allreduce":
            assert (found["i"] == before.sum(axis=0)).all()
        elif top.get("coll") == "reduce_scatter":
            assert (found["i"][own] == before.sum(axis=0)[own]).all()
        elif top.get("coll") == "alltoall":
            assert (found["o"] == before[:, own].ravel()).all()
        elif top.get("coll") == "broadcast":
            assert (found["o"] == before[root]).all()
        elif top.get("coll") == "reduce":
            assert rank != root or (found["i"] == before.sum(axis=0)).all()
        else:
            assert top.get("coll") == "allgather"
            assert all((each["o"][own] == before[rank, own]).all() for each in buffers)
    return sent
