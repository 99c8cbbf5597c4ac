"""Files of a pipeline's passes, against the schedule, PyTorch's own orders, and what it does."""

import pytest

from parallelism.transformers.schedules import PassKind, build_schedule
from topoopt.deploy.pipeline_order import pipeline_csv

NAMES = [
    ("gpipe", 1), ("1f1b", 1), ("eager-1f1b", 1), ("zero-bubble", 1), ("interleaved", 2),
    ("breadth-first", 2), ("zero-bubble-v", 2),
]  # fmt: skip


@pytest.mark.parametrize(("name", "chunks"), NAMES)
def test_every_pass_of_every_rank_is_in_its_line(name, chunks):
    schedule = build_schedule(name, 3, 6, chunks)
    lines = pipeline_csv(schedule).splitlines()
    assert len(lines) == 3
    letters = {"F": PassKind.FORWARD, "B": PassKind.BACKWARD, "I": PassKind.BACKWARD,
               "W": PassKind.WEIGHT}  # fmt: skip
    for rank, line in enumerate(lines):
        assert ("I" in line) == schedule.split_backward == ("B" not in line)
        own = schedule.parts[rank].tolist()
        found = []
        for entry in line.split(","):
            letter = next(one for one in letters if one in entry)
            part, microbatch = entry.split(letter)
            found.append([letters[letter], own.index(int(part)), int(microbatch)])
        assert found == schedule.passes[rank].tolist()


@pytest.mark.parametrize("name", ["interleaved", "zero-bubble-v"])
@pytest.mark.parametrize(("stages", "batches"), [(2, 4), (4, 8), (3, 12)])
def test_orders_with_a_name_in_pytorch_are_the_same_there(name, stages, batches):
    torch = pytest.importorskip("torch.distributed.pipelining.schedules")

    class Stage:
        """What the constructors ask of a stage."""

        def __init__(self, index):
            self.stage_index, self.num_stages = index, 2 * stages
            self.group_size, self.group_rank, self.has_backward = stages, 0, True
            self.is_first, self.is_last = index == 0, index == 2 * stages - 1
            self.device = self.group = self.submod = None
            self.stage_index_to_group_rank = {}

    kind = {"interleaved": "Interleaved1F1B", "zero-bubble-v": "ZBVZeroBubble"}[name]
    ours = build_schedule(name, stages, batches, 2)
    made = torch.get_schedule_class(kind)(
        [Stage(part) for part in ours.parts[0].tolist()], batches, loss_fn=lambda *_: None
    )
    theirs = [
        ",".join(str(entry) for entry in made.pipeline_order[rank] if entry is not None)
        for rank in range(stages)
    ]
    assert pipeline_csv(ours).splitlines() == theirs


@pytest.mark.parametrize(
    ("name", "chunks"),
    [
        ("zero-bubble", 1),
        pytest.param("eager-1f1b", 1, marks=pytest.mark.slow),
        pytest.param("breadth-first", 2, marks=pytest.mark.slow),
    ],
)
def test_pytorch_trains_in_the_order_of_the_file(name, chunks, tmp_path):
    torch = pytest.importorskip("torch")
    from pipeline_rank import run_rank

    schedule = build_schedule(name, 2, 3, chunks)
    order = tmp_path / "pipeline.csv"
    order.write_text(pipeline_csv(schedule))
    torch.multiprocessing.spawn(
        run_rank, (schedule.parts.tolist(), 3, order, tmp_path / "rendezvous"), nprocs=2
    )
