"""Training jobs on Clos fabrics: what `routing.clos` does not know, because it knows no models.

The names below are the public ones: load or draw jobs, then route or simulate them.
"""

from routing.clos.fabric import Clos
from topoopt.clos.jobs_file import load_jobs
from topoopt.clos.presets import CLOS_MODELS, draw_jobs
from topoopt.clos.study import VARIANTS, run_methods, run_variant

__all__ = ["CLOS_MODELS", "VARIANTS", "Clos", "draw_jobs", "load_jobs", "run_methods",
           "run_variant"]  # fmt: skip
