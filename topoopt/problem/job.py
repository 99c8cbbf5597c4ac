"""The question: a job to train."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from codesign_base import InfeasibleError, InputError
from codesign_base.arguments import check_kind, is_number, told, whole
from codesign_base.counted import counted
from parallelism.accelerators import get_accelerator, scale_up_of
from parallelism.builder import TaskGraphBuilder
from parallelism.device import ComputeModel, RooflineModel, Server
from parallelism.graph import MOST_BATCH, ModelGraph
from parallelism.operator_family import OperatorFamily
from parallelism.optimizer import Optimizer
from parallelism.profile import ProfileModel
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.choices import Choices
from parallelism.transformers.family import LayoutFamily
from parallelism.transformers.gpu import GpuRates, rates_of
from parallelism.transformers.implementation import MEGATRON_CORE, Implementation
from parallelism.transformers.layout import USUAL_MODULES, Layout
from parallelism.transformers.shares import check_sequence, done_again
from topoopt.problem.cluster import count_of

USUAL_ACCELERATOR = {"operators": "a100", "layouts": "h100"}
USUAL_GPUS = {"operators": 4, "layouts": 8}
"""Of a server that was not given, by the kind of the job."""

# Stands for a server that was not given: transformers have another usual one.
_USUAL_SERVER = Server(get_accelerator(USUAL_ACCELERATOR["operators"]), USUAL_GPUS["operators"])
MEMORY_RESERVE = 0.0


def nvlink_server(accelerator: str, gpus: int) -> Server:
    """Return a server whose GPUs are joined by their NVLink switch (or their own scale-up network).

    Parameters
    ----------
    accelerator : str
    gpus : int

    Returns
    -------
    Server
        Its full mesh of links adds up to the bandwidth of `scale_up_of`.

    Raises
    ------
    InputError
        If the accelerator, or its scale-up domain, is not known.
    """
    gpus = whole("gpus", gpus, "how many GPUs a server has")
    return Server(
        get_accelerator(accelerator), gpus, scale_up_of(accelerator).bandwidth / max(1, gpus - 1)
    )


@dataclass(frozen=True)
class Job:
    """A training job.

    Parameters
    ----------
    model : ModelGraph or Transformer
        A graph of operators, planned operator by operator; or a transformer, planned by layouts.
    batch_per_gpu : int, optional
        Operators: samples per GPU and iteration; the model's own setting by default.
    server : Server
        What one server holds. By default four A100 80 GB for operators, eight H100 on an NVLink
        switch for transformers.
    profile : path, optional
        Operators: a file of measured operator times; without it, a roofline of the server's
        accelerator.
    optimizer : {"sgd", "momentum", "adam"}
        Operators: plain SGD by default, which keeps no state. (That of a transformer is part of
        its ``implementation``.)
    compute : RooflineModel or ProfileModel, optional
        Operators: a model of operator times with settings of its own, instead of a profile's
        name.
    global_batch : int
        Transformers: samples of an iteration.
    sequence : int, optional
        Transformers: tokens of a sample; the model's own by default. (A graph has one: give it
        to ``models.get_model``, as ``--sequence`` with ``--per-operator`` does.)
    choices : Choices, optional
        Transformers: which layouts are considered.
    implementation : Implementation, optional
        Transformers: kernels, precisions, overlaps and memory of the training software; a stack
        of `STACKS`, Megatron-Core by default.
    rates : GpuRates, optional
        Transformers: what a GPU reaches; by default what was fitted for its kind.
    memory_reserve : float, optional
        Transformers: share of each GPU's memory that is left free, beside what the stack
        keeps; 0 by default.

    Raises
    ------
    InputError
        If a value is out of range, or says nothing for such a model.

    Examples
    --------
    >>> import topoopt as to
    >>> to.Job(to.models.get_model("dlrm-16")).kind
    'operators'
    >>> to.Job(to.load_transformer("llama3-8b"), global_batch=128).kind
    'layouts'
    """

    model: ModelGraph | Transformer
    batch_per_gpu: int | None = None
    server: Server = _USUAL_SERVER
    profile: str | Path | None = None
    optimizer: str = "sgd"
    compute: RooflineModel | ProfileModel | None = None
    global_batch: int | None = None
    sequence: int | None = None
    choices: Choices | None = None
    implementation: Implementation | None = None
    rates: GpuRates | None = None
    memory_reserve: float | None = None

    def __post_init__(self) -> None:
        refused: Mapping[str, str] = _family(self.model).refused
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in refused and value != each.default:
                raise InputError(f"{each.name} is {told(value)}, but {refused[each.name]}")
        for name, kind, instead in (
            ("server", Server, "a topoopt.Server, such as nvlink_server('h100', 8)"),
            ("profile", str | Path | None, "the name of a file"),
            ("choices", Choices | None, "parallelism.transformers.choices.Choices()"),
            ("rates", GpuRates | None, "parallelism.transformers.gpu.rates_of('h100')"),
            (
                "implementation", Implementation | None,
                "parallelism.transformers.implementation.get_stack('nemo') or another stack",
            ),
        ):  # fmt: skip
            check_kind(name, getattr(self, name), kind, instead)
        if isinstance(self.model, Transformer):
            self._check_transformer(self.model)
            return
        if self.batch_per_gpu is not None:
            batch = count_of("batch_per_gpu", self.batch_per_gpu)
            if batch > MOST_BATCH:
                raise InputError(f"batch_per_gpu is {batch}; give at most {MOST_BATCH}")
            object.__setattr__(self, "batch_per_gpu", batch)
        if self.compute is not None:
            if self.profile is not None:
                raise InputError(
                    f"both profile={str(self.profile)!r} and compute are given; give one of them"
                )
            if not hasattr(self.compute, "operator_time"):
                raise InputError(
                    f"compute is {told(self.compute)}; give a topoopt.RooflineModel or a "
                    "topoopt.ProfileModel"
                )
            if self.compute.server != self.server:
                raise InputError(
                    "compute was made for another server than the job's; give both the same"
                )
        if self.optimizer not in [o.value for o in Optimizer]:
            raise InputError(
                f"optimizer is {self.optimizer!r}; choose {', '.join(o.value for o in Optimizer)}"
            )

    def _check_transformer(self, model: Transformer) -> None:
        if self.server is _USUAL_SERVER:
            usual = nvlink_server(USUAL_ACCELERATOR[self.kind], USUAL_GPUS[self.kind])
            object.__setattr__(self, "server", usual)
        if self.global_batch is None:
            raise InputError(
                f"model {model.name!r} is a transformer, but global_batch is not given; give the "
                "samples of an iteration"
            )
        for name in ("global_batch", "sequence"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, count_of(name, getattr(self, name)))
        precision = (self.implementation or MEGATRON_CORE).precision
        accelerator = self.server.accelerator
        if precision == "fp8" and not accelerator.fp8_flops:
            raise InputError(
                f"precision is fp8, asked for or that of the stack, which {accelerator.name} does "
                "not have; give bf16, or another accelerator",
                fields=("precision",),
            )
        reserve = self.memory_reserve
        if reserve is not None and not is_number(reserve):
            raise InputError(f"memory_reserve is {told(reserve)}; give a share, such as 0.1")
        self.family(1)  # refuses what is out of range
        self._check_choices(model, self.choices or Choices())

    def _check_choices(self, model: Transformer, choices: Choices) -> None:
        """Refuse what would count for nothing."""
        software = self.implementation or MEGATRON_CORE
        if model.experts is None:
            for name, value, without in (
                ("load_imbalance", software.load_imbalance, 1.0),
                ("expert_tensor", choices.expert_tensor, ()),
                ("expert", choices.expert, choices.expert if 1 in choices.expert else ()),
            ):
                if value != without:
                    told_as = value if isinstance(value, float) else ", ".join(map(str, value))
                    raise InputError(
                        f"{name} is {told_as}, but {model.name} has no experts; leave it out",
                        fields=(name,),
                    )
        elif software.load_imbalance > model.experts.most_imbalance:
            experts = model.experts
            raise InputError(
                f"load_imbalance is {software.load_imbalance:g}, but where each token goes to "
                f"{experts.per_token} of {counted(experts.count, 'expert')}, no rank has more than "
                f"{experts.most_imbalance:g} times its share; give 1 to {experts.most_imbalance:g}",
                fields=("load_imbalance",),
            )
        if choices.stage_layers and sum(choices.stage_layers) != model.layers:
            raise InputError(
                f"stage_layers adds up to {counted(sum(choices.stage_layers), 'layer')}; give the "
                f"{model.layers} of {model.name}",
                fields=("stage_layers",),
            )
        if choices.zero == (3,) and choices.pipeline and 1 not in choices.pipeline:
            raise InputError(
                f"pipeline is {', '.join(map(str, choices.pipeline))} with zero 3, which is "
                "considered without pipelines only, as every stage would gather its weights for "
                "each microbatch; list 1 beside it, or give zero another value",
                fields=("pipeline", "zero"),
            )
        # All modules are asked for by default, of models that lack some of them, too.
        asked = choices.modules if choices.modules != Choices.modules else ()
        if "up-projections" in asked and model.attention.latent is None:
            raise InputError(
                f"modules is {', '.join(asked)}, but {model.name} has no latent attention, whose "
                "up-projections these are; leave up-projections out",
                fields=("modules",),
            )
        if "modules" not in choices.recompute and choices.modules != Choices.modules:
            raise InputError(
                f"modules is {', '.join(choices.modules)}, but recompute is "
                f"{', '.join(choices.recompute)}; add 'modules' to recompute, or leave them out",
                fields=("modules", "recompute"),
            )
        for part in choices.modules:
            found = Layout(recompute="modules", modules=(part,))
            layers = range(model.layers + 1)
            if part not in USUAL_MODULES and not any(done_again(model, i, found) for i in layers):
                raise InputError(
                    f"modules names {part}, but {model.name} has no such part; leave it out",
                    fields=("modules",),
                )

    @property
    def kind(self) -> str:
        """The job's family: "operators" or "layouts"."""
        return _family(self.model).kind

    def family(self, servers: int) -> OperatorFamily | LayoutFamily:
        """Return all parallelizations of the job on so many servers.

        Parameters
        ----------
        servers : int

        Returns
        -------
        OperatorFamily or LayoutFamily
        """
        if isinstance(self.model, Transformer):
            assert self.global_batch is not None  # checked when the job was made
            sequence = self.model.sequence if self.sequence is None else self.sequence
            check_sequence(self.model, sequence)
            return LayoutFamily(
                self.model, self.global_batch, servers, self.server,
                sequence, self.implementation or MEGATRON_CORE,
                self.choices or Choices(), self.rates or rates_of(self.server.accelerator),
                MEMORY_RESERVE if self.memory_reserve is None else self.memory_reserve,
            )  # fmt: skip
        compute = self.compute_model()
        batch = self.batch_per_gpu or self.model.batch_per_gpu
        return OperatorFamily(
            self.builder(servers, compute), self.server, compute, batch, self.optimizer
        )

    def batch(self, servers: int) -> int:
        """Return the samples of one iteration on so many servers."""
        if isinstance(self.model, Transformer):
            assert self.global_batch is not None
            return self.global_batch
        return servers * self.server.gpus * (self.batch_per_gpu or self.model.batch_per_gpu)

    def of_batch(self, batch: int, servers: int) -> "Job":
        """Return the job with so many samples an iteration.

        Raises
        ------
        InfeasibleError
            If they do not divide over the GPUs of a job by operators.
        """
        if isinstance(self.model, Transformer):
            return replace(self, global_batch=batch)
        gpus = servers * self.server.gpus
        if batch % gpus:
            raise InfeasibleError(
                f"global batch {batch} does not divide over {gpus} GPUs; give a multiple"
            )
        return replace(self, batch_per_gpu=batch // gpus)

    def compute_model(self) -> ComputeModel:
        """Return the model of operator times: measured if a profile is given, else roofline."""
        if self.compute is not None:
            return self.compute
        if self.profile is not None:
            return ProfileModel(self.profile, self.server)
        return RooflineModel(self.server)

    def builder(self, servers: int, compute: ComputeModel | None = None) -> TaskGraphBuilder:
        """Return a task-graph builder of a job by operators on so many servers.

        Parameters
        ----------
        servers : int
        compute : ComputeModel, optional
            By default `compute_model`.

        Returns
        -------
        TaskGraphBuilder

        Raises
        ------
        InputError
            If the model is a transformer.
        """
        if isinstance(self.model, Transformer):
            raise InputError(
                f"model {self.model.name!r} is a transformer, which is planned by layouts; give "
                "its operator graph"
            )
        return TaskGraphBuilder(
            self.model,
            self.compute_model() if compute is None else compute,
            self.server,
            servers,
            self.batch(servers),
            Optimizer(self.optimizer).states,
        )


def _family(model: object) -> type[OperatorFamily] | type[LayoutFamily]:
    """Return the family that plans a model."""
    if isinstance(model, Transformer):
        return LayoutFamily
    if isinstance(model, ModelGraph):
        return OperatorFamily
    raise InputError(
        f"model is {told(model)}; give a graph of operators or a transformer, such as "
        "topoopt.models.dlrm() or topoopt.load_transformer('llama3-8b')"
    )
