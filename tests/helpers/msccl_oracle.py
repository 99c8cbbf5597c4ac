"""An interpreter of MSCCL algorithm files, written apart from what writes them."""

from collections import Counter, deque
from xml.etree import ElementTree

import numpy as np


def execute(text, buffers):
    """Run an algorithm file on buffers, and return the chunks sent from rank to rank.

    Thread blocks take their steps in order; a send goes into the queue of (sender, receiver,
    channel), and a receive waits for it.
    """
    top = ElementTree.fromstring(text)
    letter = "o" if top.get("coll") == "allgather" else "i"
    assert all(gpu.get(f"{letter}_chunks") == str(len(buffers[0])) for gpu in top)
    queues = {}
    sent = Counter()
    blocks = []
    for gpu in top.iter("gpu"):
        for block in gpu.iter("tb"):
            rank, channel = int(gpu.get("id")), block.get("chan")
            to, come = int(block.get("send")), int(block.get("recv"))
            blocks.append((rank, (rank, to, channel), (come, rank, channel), deque(block)))
    moved = True
    while moved:
        moved = False
        for rank, out, into, steps in blocks:
            while steps:
                kind, at = steps[0].get("type"), int(steps[0].get("srcoff"))
                assert steps[0].get("srcbuf") == steps[0].get("dstbuf") == letter
                assert steps[0].get("dstoff") == steps[0].get("srcoff")
                value = buffers[rank][at]
                if kind != "s":
                    if not queues.get(into):
                        break
                    chunk, told = queues[into].popleft()
                    assert chunk == at
                    value = told + value if kind in ("rrs", "rrc", "rrcs") else told
                    if kind in ("r", "rcs", "rrc", "rrcs"):
                        buffers[rank][at] = value
                if kind in ("s", "rcs", "rrs", "rrcs"):
                    queues.setdefault(out, deque()).append((at, value))
                    sent[out[:2]] += 1
                steps.popleft()
                moved = True
    assert not any(steps for *_, steps in blocks), "a step waits for ever"
    assert not any(queues.values())
    return sent


def assert_right(text, seed=0):
    """Run a file on random numbers, check what every rank ends with, and return what was sent.

    In place: of an AllReduce all is the sum, of a ReduceScatter each rank's part of it, and an
    AllGather begins with each rank's part, and with nothing else that counts.
    """
    top = ElementTree.fromstring(text)
    size, chunks = int(top.get("ngpus")), int(top.get("nchunksperloop"))
    per = chunks // size
    buffers = np.random.default_rng(seed).integers(0, 1000, (size, chunks))
    before = buffers.copy()
    sent = execute(text, buffers)
    for rank in range(size):
        own = slice(rank * per, (rank + 1) * per)
        if top.get("coll") == "allreduce":
            assert (buffers[rank] == before.sum(axis=0)).all()
        elif top.get("coll") == "reduce_scatter":
            assert (buffers[rank, own] == before.sum(axis=0)[own]).all()
        else:
            assert top.get("coll") == "allgather"
            assert (buffers[:, own] == before[rank, own]).all()
    return sent
