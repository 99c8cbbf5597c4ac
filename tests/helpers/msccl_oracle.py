"""An interpreter of MSCCL algorithm files, written apart from what writes them."""

from collections import Counter, deque
from xml.etree import ElementTree


def execute(text, buffers):
    """Run an algorithm file on buffers, and return the chunks sent from rank to rank.

    Thread blocks take their steps in order; a send goes into the queue of (sender, receiver,
    channel), and a receive waits for it.
    """
    top = ElementTree.fromstring(text)
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
                assert steps[0].get("srcbuf") == steps[0].get("dstbuf") == "i"
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
