"""Default plans, exported and simulated again as the packet simulator would."""

from collections.abc import Sequence

from topoopt import Cluster, Job, co_optimize, models
from topoopt.experiment import Experiment, Row, Table, run_from_command_line
from topoopt.experiment.published import (
    PROFILES,
    measured_profile,
    operator_times,
    sixteen_servers_s,
)
from topoopt.fabric.jitter import jittered
from topoopt.formats.fbuf_plan import AllReduces, plan_fbuf
from topoopt.studies.replay import TRAIN_PACKETS, replay_fabric
from topoopt.studies.workload import fbuf_workload

_COPIES = 3


def case(
    model: str, servers: int, degree: int, bandwidth_gbps: float, compute: str, seed: int
) -> dict[str, object]:
    """Plan one job for bidirectional ports, export the plan, and simulate the export by packets.

    Parameters
    ----------
    model : str
    servers, degree : int
    bandwidth_gbps : float
        Of a port, each way.
    compute : {"roofline", "measured"}
        Operator times: the default roofline, or the profiles published with TopoOpt, from the
        directory ``measured`` of the one that TOPOOPT_DATA names.
    seed : int

    Returns
    -------
    dict
        The columns of `EXPERIMENT`.
    """
    plan = co_optimize(
        Job(
            models.get_model(model),
            profile=None if compute == "roofline" else measured_profile(model),
        ),
        Cluster(servers, degree, f"{bandwidth_gbps}Gbps", ports="bidirectional"),
        seed=seed,
        baselines=(),
    )
    workload = fbuf_workload(plan_fbuf(plan, allreduces=AllReduces.ROUNDS), model)
    replay = replay_fabric(workload, compat="htsim", latency=plan.cluster.latency_s)
    again = jittered(replay.fabric, workload.tasks, _COPIES)
    stated = plan.packet_time_s
    published = None
    if compute == "measured" and bandwidth_gbps == 100 and servers == 16:
        published = sixteen_servers_s(model, degree)[0]
    return {
        "fluid_s": plan.iteration_time_s,
        "packet_s": stated,
        "replayed_s": again.mean,
        "spread_s": again.spread,
        "difference": None if stated is None else again.mean / stated - 1.0,
        "published_best_s": published,
    }


def tabulate(rows: Sequence[Row]) -> Table:
    """Return a line a plan, in milliseconds."""
    lines = []
    for row in rows:
        times = [
            None if row[name] is None else f"{1e3 * float(row[name] or 0):.4g}"
            for name in ("packet_s", "fluid_s", "replayed_s", "published_best_s")
        ]
        moved = row["difference"]
        lines.append(
            (row["model"], row["servers"], row["degree"], row["bandwidth_gbps"], row["compute"],
             row["seed"], *times[:3],
             None if moved is None else f"{100 * float(moved):+.1f} %", times[3], row["message"])
        )  # fmt: skip
    columns = ("model", "servers", "ports", "Gbps", "compute", "seed", "stated [ms]", "fluid [ms]",
               "replayed [ms]", "replayed over stated", "published best [ms]",
               "note")  # fmt: skip
    return Table(columns, tuple(lines), "plans")


EXPERIMENT = Experiment(
    name="replayed-plans",
    description=(
        "What default plans state as their packet time, beside the exported file (AllReduces as "
        "rounds of messages) in the packet model with the artefacts of TopoOpt's packet "
        f"simulator: mean of {_COPIES} copies with delays moved by up to 2 %, packet trains "
        f"of at most {TRAIN_PACKETS} packets."
    ),
    source="TopoOpt (NSDI 2023), published searches for 16 servers; its packet simulator",
    grid={
        "model": list(PROFILES),
        "servers": [16],
        "degree": [4, 8],
        "bandwidth_gbps": [40, 100, 400],
        "compute": operator_times()[-1:],
        "seed": [0, 1, 2],
    },
    quick_grid={
        "model": ["dlrm-16", "bert-16"],
        "degree": [4],
        "bandwidth_gbps": [100],
        "compute": ["roofline"],
        "seed": [0],
    },
    columns=(
        "fluid_s", "packet_s", "replayed_s", "spread_s", "difference", "published_best_s",
    ),
    case=case,
    tabulate=tabulate,
)  # fmt: skip

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
