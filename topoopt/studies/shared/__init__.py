"""Several jobs on one cluster: contention on shared fabrics, and partitions come and gone."""

from topoopt.studies.shared.sharing import Share, share

__all__ = ["Share", "share"]
