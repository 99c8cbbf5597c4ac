"""Co-design of parallelization strategy, topology and routing for AI training clusters.

>>> import topoopt as to
>>> job = to.Job(to.models.dlrm(tables=4, batch_per_gpu=32))
>>> cluster = to.Cluster(servers=4, degree=2, bandwidth="100Gbps")
>>> plan = to.co_optimize(job, cluster, to.SearchOptions(effort="quick"))
>>> plan.iteration_time_s >= plan.lower_bound_s
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from topoopt.base.display import provide as _provide
from topoopt.base.version import installed_version as _installed_version

if TYPE_CHECKING:
    from codesign_base import InfeasibleError as InfeasibleError
    from codesign_base import InputError as InputError
    from parallelism import models as models
    from parallelism.device import RooflineModel as RooflineModel
    from parallelism.device import Server as Server
    from parallelism.importers.torch_capture import capture as capture
    from parallelism.model_file import load_model as load_model
    from parallelism.profile import ProfileModel as ProfileModel
    from parallelism.transformers.load import load_transformer as load_transformer
    from topoopt.codesign.comparison import compare as compare
    from topoopt.codesign.designs import Limits as Limits
    from topoopt.codesign.pareto import Grid as Grid
    from topoopt.codesign.pareto import explore as explore
    from topoopt.codesign.solve import co_optimize as co_optimize
    from topoopt.codesign.sweep import sweep as sweep
    from topoopt.plan.plan import Plan as Plan
    from topoopt.plan.plan import load_plan as load_plan
    from topoopt.plan.verify import verify_plan as verify_plan
    from topoopt.problem.cluster import Cluster as Cluster
    from topoopt.problem.job import Job as Job
    from topoopt.problem.options import SearchOptions as SearchOptions
    from topoopt.report import write_report as write_report

    __version__: str

# Named as data, so that plans can be shown by what lies above them.
_provide("html", "topoopt.report.notebook")
_provide("answer", "topoopt.plan.answer")
_provide("text", "topoopt.plan.answer")
_provide("details", "topoopt.plan.summary")

# Loaded on first use: `import topoopt` stays fast and pulls in no heavy library.
_HOMES = {
    "Cluster": "topoopt.problem.cluster",
    "Grid": "topoopt.codesign.pareto",
    "InfeasibleError": "codesign_base",
    "InputError": "codesign_base",
    "Job": "topoopt.problem.job",
    "Limits": "topoopt.codesign.designs",
    "Plan": "topoopt.plan.plan",
    "ProfileModel": "parallelism.profile",
    "RooflineModel": "parallelism.device",
    "SearchOptions": "topoopt.problem.options",
    "Server": "parallelism.device",
    "capture": "parallelism.importers.torch_capture",
    "co_optimize": "topoopt.codesign.solve",
    "compare": "topoopt.codesign.comparison",
    "explore": "topoopt.codesign.pareto",
    "load_model": "parallelism.model_file",
    "load_plan": "topoopt.plan.plan",
    "load_transformer": "parallelism.transformers.load",
    "sweep": "topoopt.codesign.sweep",
    "verify_plan": "topoopt.plan.verify",
    "write_report": "topoopt.report",
}

__all__ = [*sorted(_HOMES), "__version__", "models"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _installed_version()
    if name == "models":
        return import_module("parallelism.models")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    from difflib import get_close_matches

    near = get_close_matches(name, __all__, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    raise AttributeError(f"module 'topoopt' has no attribute {name!r}{meant}")


def __dir__() -> list[str]:
    return sorted(__all__)
