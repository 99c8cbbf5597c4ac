"""The command line that makes a plan again."""

import shlex
from dataclasses import replace

from codesign_base import InputError
from parallelism.accelerators import ACCELERATORS, ALIASES
from parallelism.device import RooflineModel, Server
from parallelism.models import PRESETS, get_model
from parallelism.operator_records import OperatorQuestion, model_record
from parallelism.transformers.choices import Choices
from parallelism.transformers.gpu import GpuRates, rates_of
from parallelism.transformers.implementation import STACKS, Implementation
from parallelism.transformers.load import is_transformer, load_transformer
from parallelism.transformers.presets import TRANSFORMERS
from parallelism.transformers.records import LayoutQuestion
from topoopt.baselines.baselines import PLAN_BASELINES
from topoopt.plan.plan import Plan
from topoopt.problem.job import MEMORY_RESERVE, USUAL_ACCELERATOR, USUAL_GPUS, nvlink_server
from topoopt.problem.options import Improvements
from topoopt.problem.prices import default_prices
from topoopt.problem.units import bandwidth_text, time_text

_Options = list[tuple[str, object, object]]
"""Of each option of the command line: its name, its value, and the value that it has anyhow."""


def plan_command_line(plan: Plan) -> tuple[str, tuple[str, ...]]:
    """Return the command that makes a plan again, and what it takes besides.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    command : str
        For a shell; options that have their default value are left out.
    remarks : tuple of str
        Sentences on files that the command reads, and settings that only Python has.
    """
    cluster, server = plan.cluster, plan.job.server
    options: _Options = [
        ("servers", cluster.servers, None),
        ("degree", cluster.degree, None),
        ("bandwidth", bandwidth_text(cluster.bandwidth_bytes_per_s), None),
        ("ports", cluster.ports, "directed"),
        ("latency", time_text(cluster.latency_s), "1us"),
        ("gpus-per-server", server.gpus, USUAL_GPUS[plan.job.kind]),
    ]
    if isinstance(plan.job, LayoutQuestion):
        model, own, remarks = _layouts(plan, plan.job)
    else:
        model, own, remarks = _operators(plan.job)
    options += own
    if ACCELERATORS.get(server.accelerator.name) == server.accelerator:
        short = {full: alias for alias, full in ALIASES.items()}
        name = server.accelerator.name
        options.append(("device", short.get(name, name), USUAL_ACCELERATOR[plan.job.kind]))
    else:
        remarks.append(
            f"the accelerator {server.accelerator.name}, in the plan file under job.server, is set "
            "in Python"
        )
    if server.intra_bandwidth != _usual_server(plan).intra_bandwidth:
        remarks.append(
            "the links inside a server, in the plan file under job.server, are set in Python"
        )
    searched, python = _search(plan)
    options += searched
    remarks += python
    if plan.search.wiring == "given":
        options.append(("wiring", "network.json", None))
        remarks.append(
            "network.json stands for the wiring that was given: `topoopt export plan.json --format "
            "node-link` writes its links; if a plan was given, whose rings were kept, give that one"
        )
    if plan.prices != default_prices().to_dict():
        options.append(("prices", "prices.json", None))
        remarks.append("prices.json stands for the price table, which the plan file holds")
    words = ["topoopt", "plan", model]
    for name, value, usual in options:
        if value is True:
            words.append(f"--{name}")
        elif value is not None and value is not False and value != usual:
            words += [f"--{name}", str(value)]
    return shlex.join([*words, "-o", "plan.json"]), tuple(remarks)


def _operators(job: OperatorQuestion) -> tuple[str, _Options, list[str]]:
    """Return model, options and remarks of a job by operators."""
    remarks, name = [], job.model.name
    known = name in PRESETS or name in TRANSFORMERS
    usual = known and model_record(get_model(name)) == job.model
    sequence = None if usual else _sequence(job)
    if usual or sequence is not None:
        model = name
    else:
        model = "model.yaml"
        remarks.append(
            f"model.yaml stands for the model file of {name}, or for the Python that made it; the "
            "plan file holds its operators under job.model, but not as a file to plan from"
        )
    options: _Options = [
        ("per-operator", is_transformer(model), False),
        ("sequence", sequence, None),
        ("batch-per-gpu", job.batch_per_gpu, job.model.batch_per_gpu),
        ("optimizer", job.optimizer, "sgd"),
    ]
    if job.compute.get("kind") == "profile":
        options.append(("profile", "profile.json", None))
        remarks.append(
            "profile.json stands for the measured operator times, which the plan file holds under "
            "job.compute"
        )
    elif not _usual_compute(job):
        remarks.append(
            "the roofline's settings, in the plan file under job.compute, are set in Python"
        )
    return model, options, remarks


def _sequence(job: OperatorQuestion) -> int | None:
    """Return the tokens of a sample with which a transformer's graph is the job's, if any."""
    name, tokens = job.model.name, job.model.operators[0].output_shape[0]
    if name not in TRANSFORMERS or TRANSFORMERS[name].patch:
        return None
    if TRANSFORMERS[name].positions and tokens > TRANSFORMERS[name].positions:
        return None
    return tokens if model_record(get_model(name, sequence=tokens)) == job.model else None


def _layouts(plan: Plan, job: LayoutQuestion) -> tuple[str, _Options, list[str]]:
    """Return model, options and remarks of a job by layouts."""
    remarks, name, sequence = [], job.model.name, job.sequence
    model, own, further = "config.json", job.model.sequence, job.model.mtp_layers
    if name in TRANSFORMERS:
        preset = load_transformer(name)
        if replace(job.model, sequence=preset.sequence, mtp_layers=preset.mtp_layers) == preset:
            model, own, further = name, preset.sequence, preset.mtp_layers
    if model != name:
        remarks.append(
            f"config.json stands for the Hugging Face configuration of {name}, whose architecture "
            "the plan file holds under job.model"
        )
    choices, usual = job.choices, Choices()
    considered: _Options = [
        (option, ",".join(map(str, getattr(choices, field))),
         ",".join(map(str, getattr(usual, field))))
        for option, field in (
            ("tensor", "tensor"), ("pipeline", "pipeline"), ("context", "context"),
            ("expert", "expert"), ("expert-tensor", "expert_tensor"),
            ("virtual-stages", "virtual_stages"), ("stage-layers", "stage_layers"),
            ("microbatch", "microbatch"), ("pipeline-schedule", "schedules"),
            ("zero", "zero"), ("replicate", "replicate"), ("recompute", "recompute"),
            ("recompute-modules", "modules"),
        )
    ]  # fmt: skip
    software = job.implementation
    imbalance, stack = software.load_imbalance, software.stack
    usual_software = STACKS.get(stack, Implementation())
    for name_, given, default in (
        ("settings of the training software", software,
         replace(usual_software, load_imbalance=imbalance, precision=software.precision)),
        ("rates of the GPU", job.rates, _usual_rates(job)),
        ("share of memory that is left free", job.memory_reserve, MEMORY_RESERVE),
    ):  # fmt: skip
        if given != default:
            remarks.append(f"the {name_}, in the plan file under job, is set in Python")
    options: _Options = [
        ("global-batch", plan.global_batch, None),
        ("sequence", sequence, own),
        ("mtp-layers", job.model.mtp_layers, further),
        *considered,
        ("tensor-across-servers", choices.across_servers, False),
        ("load-imbalance", imbalance, 1.0),
        ("stack", usual_software.stack, Implementation().stack),
        ("precision", software.precision, usual_software.precision),
    ]
    return model, options, remarks


def _search(plan: Plan) -> tuple[_Options, list[str]]:
    """Return the options of the search, and remarks on those that only Python has."""
    search, asked = plan.search, plan.search.options
    operators = plan.job.kind == "operators"
    seed, steps, restarts = search.first_seed, asked.steps, asked.restarts
    if operators and (asked.seconds is not None or search.interrupted):
        # Only the steps that were made say how long this search was.
        seed, steps, restarts = None, search.steps, 1
    kind, servers = plan.job.kind, plan.cluster.servers
    usual = replace(asked, confirm=None, simulated=None).settled(kind, servers)
    by_itself = replace(asked, effort=None, steps=steps, seconds=None).settled(kind, servers)
    options: _Options = [
        ("seed", plan.seed if seed is None else seed, None),
        ("steps", steps, None),
        ("effort", asked.effort or by_itself.effort, by_itself.effort),
        ("chains", asked.chains, 3),
        ("faithful", asked.faithful, None),
        ("method", asked.method, "joint"),
        ("no-parameter-splits", not asked.parameter_splits, False),
        ("confirm", asked.confirm, usual.confirm),
        ("schedule", asked.schedule, replace(asked, schedule=None).settled(kind, servers).schedule),
        ("restarts", restarts, 1),
        ("simulated", asked.simulated, usual.simulated),
        ("memory", asked.memory_bytes, 3e9),
    ]
    remarks = []
    if search.interrupted and not operators:
        remarks.append("the search was interrupted, and goes on to its end when made again")
    if asked.improvements != Improvements() or asked.reconfiguration is not None:
        remarks.append(
            "the settings of the topology finder or of rewired fabrics, in the plan file under "
            "search.options, are set in Python"
        )
    others = [name for name in plan.baselines if name not in PLAN_BASELINES]
    if others:
        remarks.append(f"that {', '.join(others)} is compared with is set in Python")
    return options, remarks


def _usual_server(plan: Plan) -> Server:
    """Return the server that the command line gives to such a job."""
    if plan.job.kind == "operators":
        return Server()
    try:
        return nvlink_server(plan.job.server.accelerator.name, plan.job.server.gpus)
    except InputError:
        return Server()


def _usual_rates(job: LayoutQuestion) -> GpuRates | None:
    """Return the rates that are fitted for a job's GPU; None if there are none."""
    try:
        return rates_of(job.server.accelerator)
    except InputError:
        return None


def _usual_compute(job: OperatorQuestion) -> bool:
    usual = RooflineModel(Server())
    return (
        job.compute.get("efficiency") == usual.efficiency
        and job.compute.get("memory_efficiency") == usual.memory_efficiency
        and job.compute.get("launch_overhead_s") == usual.launch_overhead
        and job.compute.get("precision") is None
    )
