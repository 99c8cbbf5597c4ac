"""What a second process loads while the question is still read."""

from typing import Any

from parallelism.models.dlrm import dlrm
from topoopt.evaluate.problem import Problem
from topoopt.fabric.warm import warm_up
from topoopt.problem.cluster import Cluster
from topoopt.problem.job import Job
from topoopt.search.driver import start
from topoopt.search.operators import OperatorSearch


def load() -> None:
    """Begin the search of a small job: it needs the libraries and kernels of any other."""
    cluster = Cluster(servers=4, degree=2, bandwidth="100Gbps")
    problem: Problem[Any] = Problem(Job(dlrm(tables=4)).family(cluster.servers), cluster)
    start(OperatorSearch(problem).search)
    warm_up("packet")
