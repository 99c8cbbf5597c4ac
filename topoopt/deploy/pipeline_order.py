"""The order of a pipeline's passes, as PyTorch reads it from a file."""

from parallelism.transformers.schedules import PassKind, PipelineSchedule


def pipeline_csv(schedule: PipelineSchedule) -> str:
    """Return the passes of each rank of a pipeline in their order, one line a rank.

    Parameters
    ----------
    schedule : PipelineSchedule

    Returns
    -------
    str
        Of each pass the part of the model, F for forward, B for backward (I without the gradients
        of weights), W for these gradients alone, and the microbatch; that is what
        ``torch.distributed.pipelining`` takes as a schedule of ``compute_only`` format, and adds
        messages to.

    Examples
    --------
    >>> from parallelism.transformers.schedules import build_schedule
    >>> print(pipeline_csv(build_schedule("eager-1f1b", 2, 3)), end="")
    0F0,0F1,0F2,0B0,0B1,0B2
    1F0,1B0,1F1,1B1,1F2,1B2
    """
    backward = "I" if schedule.split_backward else "B"
    letters = {PassKind.FORWARD: "F", PassKind.BACKWARD: backward, PassKind.WEIGHT: "W"}
    return "".join(
        ",".join(
            f"{parts[chunk]}{letters[PassKind(kind)]}{microbatch}"
            for kind, chunk, microbatch in passes
        )
        + "\n"
        for parts, passes in zip(schedule.parts.tolist(), schedule.passes.tolist(), strict=True)
    )
