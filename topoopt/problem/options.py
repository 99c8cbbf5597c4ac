"""How a search works: its budget, its method, and what of the paper is kept or improved."""

from dataclasses import dataclass, fields, replace
from typing import Any

from codesign_base import InputError
from codesign_base.arguments import check_kind, check_number, python_numbers, whole
from parallelism.family import Family
from topoopt.problem.effort import EFFORTS, Effort
from topoopt.problem.reconfiguration import Reconfiguration
from topoopt.problem.routing import Routing

FAITHFUL = ("paper", "artifact")
METHODS = ("joint", "alternating", "sequential", "strategy-only", "topology-only")
SCHEDULING = ("plain", "fused", "compute", "barrier", "auto")
CONFIRMING = ("packet", "none")
PACKET_SERVERS = 32
"""Up to here searches go by packet trains: routes have one path a pair, and moves are scored."""
CONFIRMED_SERVERS = 128
"""Up to here packet trains choose among the best few that a search by fluid times has found."""


@dataclass(frozen=True)
class Improvements:
    """Which departures from the paper's topology finder are tried beside it.

    Parameters
    ----------
    exact : bool
        The shortest circulant networks rather than geometric steps.
    traffic : bool
        The steps that serve the transfers best.
    splits : bool
        Every split of the ports between rings and matching, not only the formula's.
    groups : bool
        Rings of Cayley graphs of other groups than cycles, where their paths are shorter.
    """

    exact: bool = True
    traffic: bool = True
    splits: bool = True
    groups: bool = True


@dataclass(frozen=True)
class SearchOptions:
    """How a plan is sought; everything that departs from the paper can be switched back.

    Parameters
    ----------
    steps : int, optional
        Strategy proposals, and then nothing else ends the search; by default up to 20000, fewer
        where scores are expensive (see `topoopt.problem.budget.Budget`).
    seconds : float, optional
        A wall-clock budget instead; the plan records the steps that were made, and its
        ``search.options`` reproduce it.
    chains : int
        Search chains, each with a strategy and a topology of its own.
    faithful : {None, "paper", "artifact"}
        "paper": one chain, FlexFlow's moves and absolute acceptance, the formula's degree
        split, k-shortest-path routing. "artifact": besides, sample splits and whole placements
        only, d_A = d, the artifact's generators, single random shortest paths; needs
        bidirectional ports.
    method : {"joint", "alternating", "sequential", "strategy-only", "topology-only"}
        "joint": a population of strategies and topologies, scored crosswise. "alternating":
        each chain alternates between strategies on its topology and topologies for its strategy
        (the paper's). "sequential": strategies for an ideal switch, then a topology for the best.
        "strategy-only": strategies on the topology built for the usual strategy.
        "topology-only": topologies for the usual strategy. The last three are there to be
        compared with. ``faithful`` alternates.
    parameter_splits : bool
        Whether operators may be split along their parameters; measured profiles hold only sample
        splits, so that times of parameter splits are assumed.
    improvements : Improvements
        Of the topology finder; none where ``faithful`` is given.
    confirm : {None, "packet", "none"}
        packet: simulate the best few pairs found with packet trains as well, and plan the one
        with the lowest mean there. On up to 32 servers routes then take one path a pair, as
        messages do there, and strategies are sought by a score between the times with max-min
        fair shares and with transfers that yield to AllReduces, as packet trains say of some; on
        more, they are sought as without.
        The plan may be slower in the fluid model than one without confirmation. Bounds stay
        those of the fluid model. none: the fluid model chooses. By default `topoopt.co_optimize`
        takes packet for models by operators on up to 128 servers where the method is joint and
        the schedule plain or compute, and none elsewhere.
    schedule : {None, "plain", "fused", "compute", "barrier", "auto"}
        plain: as published. fused: where an AllReduce has less than a packet for each member,
        gradients are fused into buckets of a packet for each, while strategies are sought and on
        fabrics compared with, too; the plan found takes the fastest of these buckets, of half and
        a quarter of them, and of none. compute: devices work on what has the longest remaining
        path first, while strategies are sought, too. Otherwise choose a schedule inside the
        iteration for the best few pairs found, and plan the one that is then fastest: barrier
        keeps the barrier between iterations, with auto they may overlap (see
        `topoopt.problem.schedule.Schedule`). With these three baselines keep the plain one,
        and but for compute starting strategies, too. By default `topoopt.co_optimize` takes fused
        for models by operators on more than 128 servers where the method is joint and packet
        trains are not asked for, and plain elsewhere.
    restarts : int
        Independent searches with seeds derived from the given one, each with the whole budget,
        of which the best plan is returned; see `topoopt.codesign.restarts`.
    workers : int
        How many of them run at a time; results do not depend on it.
    engine : str
        Where: ``local`` processes, ``ray``, or ``ray://HOST:PORT``.
    simulated : int, optional
        Layouts of a transformer that are simulated, best estimates and bounds first; by default
        28, quick 9 and thorough 84.
    memory_bytes : float
        Bytes that the task graph of a layout may take, as predicted from the layout. Layouts that
        would take more are not simulated, and the plan's notes name them; those in which the
        model was run by others are, whatever they take.
    reconfiguration : Reconfiguration, optional
        Of the baselines ``sip-ml`` and ``ocs-reconfig``.
    effort : {None, "quick", "normal", "thorough"}
        How much work the answer is worth, instead of numbers (see `topoopt.problem.effort`).
        normal stops where the last tenth of the work gained less than 0.2 %, and lets packet
        trains try less; quick where it gained less than 2 %; thorough spends the whole budget.
        Work is counted, not timed. By default normal; thorough where ``steps`` or ``seconds`` are
        given, and for methods that are there to be compared with.

    Raises
    ------
    InputError
        If a value is out of range, or two contradict each other.

    Examples
    --------
    >>> import topoopt as to
    >>> to.SearchOptions(steps=500, confirm="none").chains
    3
    """

    steps: int | None = None
    seconds: float | None = None
    chains: int = 3
    faithful: str | None = None
    method: str = "joint"
    parameter_splits: bool = True
    improvements: Improvements = Improvements()
    confirm: str | None = None
    schedule: str | None = None
    restarts: int = 1
    workers: int = 1
    engine: str = "local"
    simulated: int | None = None
    memory_bytes: float = 3e9
    reconfiguration: Reconfiguration | None = None
    effort: str | None = None

    def __post_init__(self) -> None:
        python_numbers(self)
        if self.steps is not None and self.seconds is not None:
            raise InputError(
                f"both steps={self.steps} and seconds={self.seconds} are given; give one of them"
            )
        for name, least in (
            ("steps", 0), ("chains", 1), ("restarts", 1), ("workers", 1), ("simulated", 1),
        ):  # fmt: skip
            count = getattr(self, name)
            if count is None and name in ("steps", "simulated"):
                continue
            count = whole(name, count, "a whole number")
            object.__setattr__(self, name, count)
            if not least <= count <= _MOST[name]:
                raise InputError(f"{name} is {count}; give {least} to {_MOST[name]}")
        if self.seconds is not None:
            check_number("seconds", self.seconds)
        check_number("memory_bytes", self.memory_bytes)
        check_kind("parameter_splits", self.parameter_splits, bool, "True or False")
        check_kind(
            "reconfiguration", self.reconfiguration, Reconfiguration | None,
            "topoopt.problem.reconfiguration.Reconfiguration()",
        )  # fmt: skip
        check_kind("improvements", self.improvements, Improvements, "Improvements()")
        check_kind("engine", self.engine, str, "'local', 'ray' or 'ray://HOST:PORT'")
        for name, choices in (
            ("faithful", FAITHFUL), ("method", METHODS), ("schedule", SCHEDULING),
            ("confirm", CONFIRMING), ("effort", tuple(EFFORTS)),
        ):  # fmt: skip
            value = getattr(self, name)
            if name == "confirm" and value == "train":
                raise InputError("confirm is 'train', which is now called 'packet'; give 'packet'")
            if value not in (*choices, None) or (name == "method" and value is None):
                raise InputError(f"{name} is {value!r}; choose {', '.join(choices)}")
        if self.faithful is not None and self.method not in ("joint", "alternating"):
            raise InputError(
                f"method is {self.method!r} but faithful is {self.faithful!r}, which alternates; "
                "leave one of them out"
            )
        if self.schedule not in (None, "plain", "compute") and self.confirm == "packet":
            raise InputError(
                f"both schedule={self.schedule!r} and confirm={self.confirm!r} are given, but "
                "packet trains choose among iterations as published, or with another order of "
                "compute; give one of them, or schedule='compute'"
            )

    def check(self, family: Family[Any]) -> None:
        """Refuse options that say nothing for the job's family.

        Parameters
        ----------
        family : Family

        Raises
        ------
        InputError
            Naming the first that has another value than its default, or the schedule.
        """
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in family.refused and value != each.default:
                raise InputError(f"{each.name} is {value!r}, but {family.refused[each.name]}")
        if self.schedule == "auto" and not family.overlaps:
            raise InputError(
                f"schedule is 'auto', but iterations of a {family.noun} do not overlap here; give "
                "'plain', 'compute' or 'barrier'"
            )
        if self.schedule == "fused" and family.kind != "operators":
            raise InputError(
                f"schedule is 'fused', but a {family.noun} has its gradients in buckets anyway; "
                "give 'plain', 'compute' or 'barrier'"
            )

    def settled(self, kind: str, servers: int) -> "SearchOptions":
        """Return the options with the choices made that depend on the job.

        Whether packet trains have the last word: they cost little for operators on up to so many
        servers. Layouts send many times more messages, the faithful searches repeat what was
        published, and the other methods are there to be compared with. Whether gradients are
        fused: on more servers, where they would else be less than a packet. And the effort.

        Parameters
        ----------
        kind : {"operators", "layouts"}
            Of the job's family.
        servers : int

        Returns
        -------
        SearchOptions
        """
        joint = (self.method, self.faithful) == ("joint", None)
        confirm, effort, simulated = self.confirm, self.effort, self.simulated
        small, schedule = servers <= CONFIRMED_SERVERS, self.schedule
        if schedule is None:
            fuses = kind == "operators" and not small and joint and confirm != "packet"
            schedule = "fused" if fuses else "plain"
        if confirm is None:
            orders = schedule in ("plain", "compute")
            confirm = "packet" if kind == "operators" and small and joint and orders else "none"
        if effort is None:
            numbers = self.steps is not None or self.seconds is not None
            effort = "thorough" if numbers or not joint else "normal"
        if kind == "layouts" and simulated is None:
            simulated = EFFORTS[effort].layouts
        return replace(self, confirm=confirm, effort=effort, simulated=simulated, schedule=schedule)

    @property
    def spent(self) -> Effort:
        """What the effort trades for time; thorough where none was settled."""
        return EFFORTS["thorough" if self.effort is None else self.effort]

    @property
    def searched(self) -> str:
        """How strategies are sought: as published where that is asked, else by the method."""
        return self.method if self.faithful is None else self.faithful

    def one_path(self, servers: int) -> bool:
        """Whether routes have one path a pair: the search goes by packet trains."""
        return self.confirm == "packet" and servers <= PACKET_SERVERS

    @property
    def compute_order(self) -> str:
        """Order of tasks that wait for a device, see `topoopt.problem.schedule.Schedule`."""
        return "critical-path" if self.schedule == "compute" else "ready"

    @property
    def scheduling(self) -> str:
        """What the schedule may be; plain where none was settled."""
        return "plain" if self.schedule is None else self.schedule

    @property
    def plain_orders(self) -> bool:
        """Whether devices and links serve tasks as published, so that only buckets may differ."""
        return self.scheduling in ("plain", "fused")

    def routings(self, servers: int) -> tuple[Routing, ...]:
        """Routings tried for each topology."""
        if self.faithful == "artifact":
            return (Routing.SINGLE,)
        if self.faithful == "paper":
            return (Routing.K_SHORTEST,)
        if self.one_path(servers):
            return (Routing.BALANCED,)
        return (Routing.ECMP, Routing.K_SHORTEST, Routing.MCF)

    def plan_routings(self, servers: int) -> tuple[Routing, ...]:
        """Routings that a plan may have; of those that give its routes it names the first."""
        tried = self.routings(servers)
        if tried == (Routing.BALANCED,):
            return (Routing.ECMP, Routing.BALANCED)  # equal splits are tried beside one path
        if self.confirm == "packet" and Routing.BALANCED not in tried and self.faithful is None:
            return (*tried, Routing.BALANCED)  # one path is tried beside the splits
        return tried


# What is more than these is a slip of the hand: no machine would end it.
_MOST = {
    "steps": 10**9, "chains": 1000, "restarts": 10_000, "workers": 1024, "simulated": 10**6,
}  # fmt: skip
