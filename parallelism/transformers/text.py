"""A layout and its placement in words."""

from itertools import groupby

from parallelism.transformers.layout import LOOPED, Layout
from parallelism.transformers.placement import AxisOrder


def layout_text(layout: Layout) -> str:
    """Return a layout in the field's abbreviations."""
    degrees = [
        f"{short} {value}"
        for short, value in (
            ("tp", layout.tensor), ("cp", layout.context), ("dp", layout.data),
            ("pp", layout.pipeline), ("ep", layout.expert),
        )
        if value > 1
    ]  # fmt: skip
    if layout.expert_tensor is not None:
        degrees.append(f"etp {layout.expert_tensor}")
    schedule: str = layout.schedule
    if layout.schedule in LOOPED:
        schedule += f" x {layout.virtual_stages}"
    rest = [f"microbatch {layout.microbatch}"]
    rest += [f"schedule {schedule}"] if layout.pipeline > 1 else []
    if layout.stage_layers:
        rest.append(f"layers of the parts {stage_map_text(layout.stage_layers)}")
    again = " and ".join(layout.modules) or layout.recompute
    rest += [f"recomputation {again}", f"ZeRO {layout.zero}"]
    rest += [f"replicate {layout.replicate}"] if layout.replicate > 1 else []
    rest += ["sequence parallel"] if layout.tensor > 1 and layout.sequence_parallel else []
    return ", ".join([*(degrees or ["one GPU"]), *rest])


def stage_map_text(layers: tuple[int, ...]) -> str:
    """Return the layers of parts as the command line takes them: 4x13 for thirteen fours."""
    runs = [(value, len(list(same))) for value, same in groupby(layers)]
    return ",".join(f"{value}x{times}" if times > 1 else str(value) for value, times in runs)


def order_text(order: AxisOrder, layout: Layout) -> str:
    """Return which ranks are neighbours."""
    moved = [axis for axis in order if getattr(layout, axis) > 1]
    if not moved:
        return "all GPUs are one rank"
    return "servers are filled along " + ", then ".join(moved)
