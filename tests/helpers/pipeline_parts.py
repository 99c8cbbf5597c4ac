"""Which stage has which part of a model: parts go round the stages, or to the last and back."""


def part_of(schedule, stages, stage, chunk):
    """Return the part of the model that a stage's chunk is, by the schedule's name."""
    if schedule == "zero-bubble-v" and chunk == 1:
        return 2 * stages - 1 - stage
    return chunk * stages + stage


def stage_of(schedule, stages, part):
    """Return the stage that has a part."""
    if schedule == "zero-bubble-v":
        return min(part, 2 * stages - 1 - part)
    return part % stages
