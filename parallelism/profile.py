"""Compute time from a measured profile, with a stated rule for whatever was not measured."""

import math
from bisect import bisect_left
from pathlib import Path
from typing import Any, Literal

from codesign_base import InputError
from codesign_base.arguments import check_kind
from codesign_base.counted import counted
from parallelism.device import OperatorTime, RooflineModel, Server
from parallelism.graph import Mode, ModelGraph
from parallelism.profile_file import (
    PROFILE_GPUS,
    Measurement,
    Profile,
    load_profile,
    measured_name,
)


class ProfileModel:
    """Compute time of operators from measurements at several numbers of sample parts.

    An operator is looked up as `measured_name` spells it, else by its published name. Split
    sample x parameter, it takes the time of that parameter part at ``sample`` parts if it was
    measured, else the time measured at ``sample * parameter`` parts (an assumption). Where the
    job's batch or GPUs a server differ from the profile's, the number of parts is scaled so
    that a GPU has as many samples as when it was measured (of tables timed here, a server).
    Part counts that were not measured follow `time_at`. Every use of
    a rule is recorded in `notes`.

    Parameters
    ----------
    profile : Profile, str or Path
    server : Server, optional
        Only its number of GPUs matters (and all of it where the roofline fills in).
    missing : {"error", "roofline"}, optional
        What to do for an operator that the profile does not list.
    roofline : RooflineModel, optional
        The roofline that fills in; by default one of the same server.

    Raises
    ------
    InputError
        If the file is unusable. `operator_time` raises it for an operator that is not listed.

    Notes
    -----
    Published profiles drop shapes from names, so that one measurement may stand for operators
    of different shapes; this is noted, too.

    Examples
    --------
    >>> import topoopt as to
    >>> from parallelism.profile_file import Measurement, Profile, measured_name
    >>> graph = to.models.dlrm(tables=4, batch_per_gpu=32)
    >>> each = (Measurement(1, 4e-3, 8e-3, 1e6), Measurement(4, 1e-3, 2e-3, 1e6))
    >>> named = {measured_name(operator): each for operator in graph.operators}
    >>> measured = to.ProfileModel(Profile("mine", batch=512, servers=4, measurements=named))
    >>> measured.operator_time(graph, 0, 512, 4, 1, "output").forward
    0.001
    """

    def __init__(
        self,
        profile: Profile | str | Path,
        server: Server | None = None,
        *,
        missing: Literal["error", "roofline"] = "error",
        roofline: RooflineModel | None = None,
    ) -> None:
        if missing not in ("error", "roofline"):
            raise InputError(f"missing is {missing!r}; choose 'error' or 'roofline'")
        check_kind("profile: server", server, Server | None, "a topoopt.Server")
        check_kind("profile: roofline", roofline, RooflineModel | None, "a topoopt.RooflineModel")
        self.profile = profile if isinstance(profile, Profile) else load_profile(profile)
        self.server = Server() if server is None else server
        self.missing = missing
        self.roofline = RooflineModel(self.server) if roofline is None else roofline
        self._graph: ModelGraph | None = None
        self._sentences: set[str] = set()
        # (operator, rule) -> parts that the rule was used at, so that notes stay few.
        self._rules: dict[tuple[str, str], set[float]] = {}

    def operator_time(
        self, graph: ModelGraph, index: int, batch: int, sample: int, parameter: int, mode: Mode
    ) -> OperatorTime:
        """Return the time of one part; see `parallelism.device.ComputeModel`.

        Raises
        ------
        InputError
            If the profile does not list the operator and nothing fills in.
        """
        if graph is not self._graph:
            self._meet(graph)
        op = graph.operators[index]
        split = measured_name(op, mode, parameter)
        own = self.profile.measurements.get(split)
        if own is not None and parameter > 1:
            # The part itself was measured, so that only samples are left to divide.
            return self._at(split, own, sample, batch, op.sparse)
        exact = measured_name(op)
        points = self.profile.measurements.get(exact)
        key = op.profile_key if points is None else exact
        points = self.profile.measurements.get(key) if points is None else points
        if points is None:
            # _meet has raised unless the roofline may fill in.
            return self.roofline.operator_time(graph, index, batch, sample, parameter, mode)
        if parameter > 1:
            self._sentences.add(
                "a parameter split p x q that was not measured takes the time measured at p*q parts"
            )
        whole_server = key == exact and op.sparse
        return self._at(key, points, sample * parameter, batch, whole_server)

    def _at(
        self, key: str, points: tuple[Measurement, ...], whole: int, batch: int, whole_server: bool
    ) -> OperatorTime:
        """Return the time at a number of sample parts of this job.

        Tables that were measured here take the samples of a whole server, all others those of
        a GPU.
        """
        parts = float(whole)
        gpus = PROFILE_GPUS if whole_server else self.server.gpus
        if batch != self.profile.batch or gpus != PROFILE_GPUS:
            # One division of whole numbers, so that measured parts are met exactly.
            parts = whole * self.profile.batch * gpus / (batch * PROFILE_GPUS)
            self._sentences.add(
                f"the profile has batch {self.profile.batch} and {PROFILE_GPUS} GPUs a server, "
                f"the job {batch} and {self.server.gpus}: times are looked up at the parts that "
                "give a GPU as many samples"
            )
        forward, backward, rule = time_at(points, parts)
        if rule:
            self._rules.setdefault((key, rule), set()).add(parts)
        return OperatorTime(forward, backward, 0.0)

    @property
    def notes(self) -> tuple[str, ...]:
        """Every assumption and interpolation used so far, one sentence each, sorted."""
        sentences = set(self._sentences)
        for (key, rule), used in self._rules.items():
            listed = ", ".join(f"{parts:g}" for parts in sorted(used))
            sentences.add(f"{key}: no measurement at {counted(listed, 'part')}; {rule}")
        return tuple(sorted(sentences))

    def describe(self) -> dict[str, Any]:
        """Return the profile's identity for a plan's provenance."""
        return {
            "kind": "profile",
            "profile": self.profile.to_dict(),
            "gpus": self.server.gpus,
            "missing": self.missing,
            "roofline": self.roofline.describe() if self.missing == "roofline" else None,
        }

    def _meet(self, graph: ModelGraph) -> None:
        """Check a graph against the profile once, and note what holds for all its times."""
        shapes: dict[str, set[tuple[float, float]]] = {}
        for op in graph.operators:
            key = op.profile_key
            if measured_name(op) in self.profile.measurements:
                continue
            if key in self.profile.measurements:
                shapes.setdefault(key, set()).add((op.forward_flops, op.forward_bytes))
            elif self.missing == "error":
                named = f"{key!r}" if key else "nothing like it"
                raise InputError(
                    f"profile {self.profile.path!r} has no measurement of operator {op.name!r} "
                    f"of model {graph.name!r} (looked for {named}); use the profile of this "
                    "model, or from Python let the roofline fill in (missing='roofline')"
                )
            else:
                self._sentences.add(
                    f"{key or op.name}: not in the profile; its time is the roofline's"
                )
                self._sentences.update(self.roofline.notes)
        for key, different in shapes.items():
            if len(different) > 1:
                self._sentences.add(
                    f"{key}: one measurement stands for operators of {len(different)} shapes"
                )
        if any(op.sparse and op.profile_key in shapes for op in graph.operators):
            self._sentences.add(
                "embeddings were measured on one GPU with the full batch; that time stands for "
                "a whole server"
            )
        self._sentences.add("profiles hold no update times: updates take no time")
        self._graph = graph


def time_at(points: tuple[Measurement, ...], parts: float) -> tuple[float, float, str]:
    """Return the time at a number of parts, and by which rule if it was not measured.

    Between measurements, the logarithm of time is linear in the logarithm of parts. Towards
    fewer parts time is proportional to 1 / parts. Towards more parts it follows the slope of
    the last two measurements, kept within [-1, 0]; a single measurement is scaled by
    1 / parts.

    Parameters
    ----------
    points : tuple of Measurement
        At least one, ascending in parts.
    parts : float
        Positive, not necessarily whole.

    Returns
    -------
    forward, backward : float
        Seconds.
    rule : str
        Empty where the parts were measured.
    """
    place = bisect_left(points, parts, key=lambda point: point.parts)
    if place < len(points) and points[place].parts == parts:
        return points[place].forward, points[place].backward, ""
    if place == 0 or len(points) == 1:
        anchor = points[0]
        scale = anchor.parts / parts
        rule = f"scaled from {anchor.parts} in proportion to 1/parts"
        return anchor.forward * scale, anchor.backward * scale, rule
    inside = place < len(points)
    low, high = (points[place - 1], points[place]) if inside else (points[-2], points[-1])
    span = math.log(high.parts / low.parts)
    forward_slope = math.log(high.forward / low.forward) / span
    backward_slope = math.log(high.backward / low.backward) / span
    if inside:
        rule = f"interpolated between {low.parts} and {high.parts}"
        reach = math.log(parts / low.parts)
        start = low
    else:
        rule = f"continued from {low.parts} and {high.parts}"
        reach = math.log(parts / high.parts)
        start = high
        forward_slope = min(0.0, max(-1.0, forward_slope))
        backward_slope = min(0.0, max(-1.0, backward_slope))
    return (
        start.forward * math.exp(forward_slope * reach),
        start.backward * math.exp(backward_slope * reach),
        rule,
    )
