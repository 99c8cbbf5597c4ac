"""The published share of idle time of pipelines, for uniform stages and instant transfers."""


def bubble_fraction(schedule, stages, microbatches, chunks=1):
    """Return idle over busy time of a rank.

    ``(p - 1) / m``; over ``v`` for the interleaved schedule (Narayanan et al., 2021, section
    2.2) and the breadth-first one (Lamy-Poirier, 2023, section 4). ZB-H1, where forward, backward
    and weight passes take equally long and there are at least as many microbatches as stages: a
    third (Qi et al., 2023, table 1). ZB-V: half of that, with
    twice as many microbatches, less one (with as many as stages, all of it).
    """
    parts = {"interleaved": chunks, "breadth-first": chunks, "zero-bubble": 3, "zero-bubble-v": 6}
    parts = parts.get(schedule, 1)
    if schedule == "zero-bubble-v" and microbatches == stages:
        parts /= 2
    return (stages - 1) / (microbatches * parts)
