"""The question: the cluster parts to train a job on."""

from dataclasses import dataclass

from codesign_base import InputError
from codesign_base.arguments import whole
from topoopt.problem.ports import PortModel, port_model
from topoopt.problem.units import parse_latency, parse_port_rate

# Routes are kept for every pair of servers, and wirings are tried for every split of the ports.
MAX_SERVERS = 4096
MAX_DEGREE = 256


def count_of(name: str, value: object, remedy: str = "a whole number of at least 1") -> int:
    """Return a whole number of at least 1, of Python or numpy; refuse anything else."""
    count = whole(name, value, remedy)
    if count < 1:
        raise InputError(f"{name} is {count}; give {remedy}")
    return count


CLUSTER_EXAMPLE = (
    'a topoopt.Cluster, such as topoopt.Cluster(servers=16, degree=4, bandwidth="100Gbps")'
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
        Speed of a port each way, for example "100Gbps"; a number is bytes/s, a million or more.
    ports : {"directed", "bidirectional"}
        Directed: a port's transmit and receive fibres may go to different servers.
        Bidirectional: a port joins two servers both ways.
    latency : str or float
        Time for one hop, for example "1us"; a number is seconds, less than 0.1.

    Raises
    ------
    InputError
        If a value is out of range; beyond 4096 servers or 256 ports a server routes and
        candidate wirings would not fit in memory or time, and beyond ports of 1bps to 1e6Tbps
        or hops of an hour simulations lose events in the rounding of their clock.

    Examples
    --------
    >>> import topoopt as to
    >>> to.Cluster(servers=16, degree=4, bandwidth="100Gbps").port_rate
    12500000000.0
    """

    servers: int
    degree: int
    bandwidth: str | float
    ports: str = "directed"
    latency: str | float = 1e-6

    def __post_init__(self) -> None:
        ports = "a whole number of at least 1, the ports of a server"
        for name, value, most in (
            ("servers", count_of("servers", self.servers), MAX_SERVERS),
            ("degree", count_of("degree", self.degree, ports), MAX_DEGREE),
        ):
            if value > most:
                raise InputError(f"{name} is {value}; at most {most} are supported")
            object.__setattr__(self, name, value)
        _ = self.port_model, self.port_rate, self.hop_latency

    @property
    def port_rate(self) -> float:
        """Bytes/s of one port, each way."""
        return parse_port_rate(self.bandwidth)

    @property
    def hop_latency(self) -> float:
        """Seconds for one hop."""
        return parse_latency(self.latency)

    @property
    def port_model(self) -> PortModel:
        """The port model as an enum."""
        return port_model(self.ports)
