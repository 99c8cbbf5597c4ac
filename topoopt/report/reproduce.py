"""The command line that makes a plan again."""

import shlex

from parallelism.accelerators import ACCELERATORS, ALIASES
from parallelism.device import RooflineModel, Server
from parallelism.models import PRESETS, get_model
from topoopt.plan.plan import Plan
from topoopt.plan.records import model_record
from topoopt.problem.prices import default_prices
from topoopt.problem.units import parse_bandwidth, parse_time


def plan_command_line(plan: Plan) -> tuple[str, tuple[str, ...]]:
    """Return the command that makes a plan again, and what it takes besides.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    command : str
        For a shell; options that have their default value are left out, but for the budget.
    remarks : tuple of str
        Sentences on files that the command reads, and settings that only Python has.
    """
    remarks = []
    if plan.model.name in PRESETS and model_record(get_model(plan.model.name)) == plan.model:
        model = plan.model.name
    else:
        model = "model.yaml"
        remarks.append(
            f"model.yaml stands for the operator-graph file of {plan.model.name}, which the plan "
            "file holds under model"
        )
    words = ["topoopt", "plan", model]
    cluster, search, compute = plan.cluster, plan.search, plan.compute
    options: list[tuple[str, object, object]] = [
        ("servers", cluster.servers, None),
        ("degree", cluster.degree, None),
        ("bandwidth", bandwidth_text(cluster.bandwidth_bytes_per_s), None),
        ("ports", cluster.ports, "directed"),
        ("latency", _time_text(cluster.latency_s), "1us"),
        ("gpus-per-server", plan.server["gpus"], 4),
        ("batch-per-gpu", plan.batch_per_gpu, plan.model.batch_per_gpu),
        ("optimizer", plan.optimizer, "sgd"),
        ("seed", plan.seed, None),
        ("steps", search.steps, None),
        ("chains", search.chains, 3),
        ("faithful", search.faithful, None),
        ("confirm", None if plan.confirmation is None else "train", None),
    ]
    accelerator = plan.server["accelerator"]["name"]
    if accelerator in ACCELERATORS:
        short = {full: alias for alias, full in ALIASES.items()}
        options.append(("device", short.get(accelerator, accelerator), "a100"))
    else:
        remarks.append(f"the accelerator {accelerator} is set from Python")
    if compute.get("kind") == "profile":
        options.append(("profile", "profile.json", None))
        remarks.append(
            "profile.json stands for the measured operator times, which the plan file holds under "
            "compute"
        )
    elif not _usual_compute(plan):
        remarks.append("the roofline's settings, in the plan file under compute, are set in Python")
    if plan.server["intra_bandwidth"] != Server().intra_bandwidth:
        remarks.append(
            "the links inside a server, in the plan file under server, are set in Python"
        )
    if plan.prices != default_prices().to_dict():
        options.append(("prices", "prices.json", None))
        remarks.append("prices.json stands for the price table, which the plan file holds")
    for name, value, usual in options:
        if value is not None and value != usual:
            words += [f"--{name}", str(value)]
    return shlex.join([*words, "-o", "plan.json"]), tuple(remarks)


def bandwidth_text(rate: float) -> str:
    """Return a bandwidth as the command line takes it, without loss."""
    for unit, scale in (("Gbps", 1e9), ("Mbps", 1e6), ("bps", 1.0)):
        text = f"{rate * 8 / scale:.12g}{unit}"
        if rate * 8 >= scale and parse_bandwidth(text) == rate:
            return text
    return f"{rate!r}B/s"


def _time_text(seconds: float) -> str:
    for unit, scale in (("ms", 1e3), ("us", 1e6), ("ns", 1e9)):
        text = f"{seconds * scale:.12g}{unit}"
        if seconds * scale >= 1.0 and parse_time(text) == seconds:
            return text
    return f"{seconds!r}s"


def _usual_compute(plan: Plan) -> bool:
    usual = RooflineModel(Server())
    return (
        plan.compute.get("efficiency") == usual.efficiency
        and plan.compute.get("memory_efficiency") == usual.memory_efficiency
        and plan.compute.get("launch_overhead_s") == usual.launch_overhead
        and plan.compute.get("precision") is None
    )
