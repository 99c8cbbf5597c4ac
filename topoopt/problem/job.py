"""The question: a job to train, and the cluster parts to train it on."""

from dataclasses import dataclass, field
from enum import StrEnum
from numbers import Integral
from pathlib import Path

from codesign_base import InputError
from parallelism.builder import TaskGraphBuilder
from parallelism.device import ComputeModel, RooflineModel, Server
from parallelism.graph import ModelGraph
from parallelism.profile import ProfileModel
from topoopt.problem.ports import PortModel
from topoopt.problem.units import parse_bandwidth, parse_time

# Routes are kept for every pair of servers, and wirings are tried for every split of the ports.
MAX_SERVERS = 4096
MAX_DEGREE = 256


def _check_count(name: str, value: object, mend: str = "give a whole number of at least 1") -> None:
    # numpy integers count, truth values do not; fractions are refused rather than cut off.
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InputError(f"{name} is {value!r}; {mend}")


class Optimizer(StrEnum):
    """Which optimizer trains the model; it decides how many copies of a parameter are kept."""

    SGD = "sgd"
    MOMENTUM = "momentum"
    ADAM = "adam"

    @property
    def states(self) -> int:
        """Extra copies of every parameter."""
        return {"sgd": 0, "momentum": 1, "adam": 2}[self.value]


@dataclass(frozen=True)
class Job:
    """A training job.

    Parameters
    ----------
    model : ModelGraph
    batch_per_gpu : int, optional
        Samples a GPU and iteration; the model's own setting by default.
    server : Server
        What one server holds; four A100 80 GB by default.
    profile : path, optional
        A file of measured operator times; without it, a roofline of the server's accelerator.
    optimizer : {"sgd", "momentum", "adam"}
        Plain SGD by default, which keeps no state.
    compute : RooflineModel or ProfileModel, optional
        A model of operator times with settings of its own, instead of a profile's name.
    """

    model: ModelGraph
    batch_per_gpu: int | None = None
    server: Server = field(default_factory=Server)
    profile: str | Path | None = None
    optimizer: str = "sgd"
    compute: RooflineModel | ProfileModel | None = None

    def __post_init__(self) -> None:
        if self.batch_per_gpu is not None:
            _check_count("batch_per_gpu", self.batch_per_gpu)
        if self.compute is not None:
            if self.profile is not None:
                raise InputError(
                    f"both profile={str(self.profile)!r} and compute are given; give one of them"
                )
            if self.compute.server != self.server:
                raise InputError(
                    "compute was made for another server than the job's; give both the same"
                )
        if self.optimizer not in [o.value for o in Optimizer]:
            raise InputError(
                f"optimizer is {self.optimizer!r}; choose {', '.join(o.value for o in Optimizer)}"
            )

    def global_batch(self, servers: int) -> int:
        """Return the samples of one iteration on so many servers."""
        return servers * self.server.gpus * (self.batch_per_gpu or self.model.batch_per_gpu)

    def compute_model(self) -> ComputeModel:
        """Return the model of operator times: measured if a profile is given, else roofline."""
        if self.compute is not None:
            return self.compute
        if self.profile is not None:
            return ProfileModel(self.profile, self.server)
        return RooflineModel(self.server)

    def builder(self, servers: int, compute: ComputeModel | None = None) -> TaskGraphBuilder:
        """Return a task-graph builder of this job on so many servers.

        Parameters
        ----------
        servers : int
        compute : ComputeModel, optional
            By default `compute_model`.

        Returns
        -------
        TaskGraphBuilder
        """
        return TaskGraphBuilder(
            self.model,
            self.compute_model() if compute is None else compute,
            self.server,
            servers,
            self.global_batch(servers),
            Optimizer(self.optimizer).states,
        )


@dataclass(frozen=True)
class Cluster:
    """The parts of a dedicated cluster: servers, ports, and the speed of a port.

    Parameters
    ----------
    servers : int
        Number of servers.
    degree : int
        Network ports a server.
    bandwidth : str or float
        Speed of a port each way, for example "100Gbps"; a number is bytes/s.
    ports : {"directed", "bidirectional"}
        Directed: a port's transmit and receive fibres may go to different servers.
        Bidirectional: a port joins two servers both ways.
    latency : str or float
        Time for one hop, for example "1us"; a number is seconds.

    Raises
    ------
    InputError
        If a value is out of range; beyond 4096 servers or 256 ports a server routes and
        candidate wirings would not fit in memory or time.
    """

    servers: int
    degree: int
    bandwidth: str | float
    ports: str = "directed"
    latency: str | float = 1e-6

    def __post_init__(self) -> None:
        _check_count("servers", self.servers)
        _check_count("degree", self.degree, "every server needs at least 1 port")
        for name, value, most in (
            ("servers", self.servers, MAX_SERVERS),
            ("degree", self.degree, MAX_DEGREE),
        ):
            if value > most:
                raise InputError(f"{name} is {value}; at most {most} are supported")
        if self.ports not in [p.value for p in PortModel]:
            raise InputError(
                f"ports is {self.ports!r}; choose {' or '.join(p.value for p in PortModel)}"
            )
        _ = self.port_rate, self.hop_latency

    @property
    def port_rate(self) -> float:
        """Bytes/s of one port, each way."""
        return parse_bandwidth(self.bandwidth, "bandwidth")

    @property
    def hop_latency(self) -> float:
        """Seconds for one hop."""
        return parse_time(self.latency, "latency", allow_zero=True)

    @property
    def port_model(self) -> PortModel:
        """The port model as an enum."""
        return PortModel(self.ports)
