"""Several jobs on one cluster: contention on shared fabrics, and partitions come and gone."""

from topoopt.studies.shared.arrivals import Queued, Request, Stay, poisson_requests, serve
from topoopt.studies.shared.contention import Contention, Tenant, alone_s, simulate_together
from topoopt.studies.shared.mix import MIX, apportion, place_jobs
from topoopt.studies.shared.sharing import Share, share

__all__ = [
    "MIX",
    "Contention",
    "Queued",
    "Request",
    "Share",
    "Stay",
    "Tenant",
    "alone_s",
    "apportion",
    "place_jobs",
    "poisson_requests",
    "serve",
    "share",
    "simulate_together",
]
