"""Geometric, exact circulant and Cayley generators, and how short paths could be."""

from collections.abc import Sequence

from codesign_base import InfeasibleError
from topoopt.experiment import Experiment, Row, Table, listed, run_from_command_line
from topoopt.topology.cayley import select_cayley
from topoopt.topology.circulants import Objective, circulant_distances, select_circulant
from topoopt.topology.moore import abelian_bound, moore_bound
from topoopt.topology.select import select_permutations


def case(
    servers: int, degree: int, ports: str, most_sets: int, seed: int
) -> list[dict[str, object]]:
    """Choose generators by four rules; one row a rule.

    Parameters
    ----------
    servers, degree : int
    ports : {"directed", "bidirectional"}
        Of bidirectional ports an odd one joins servers half the ring apart.
    most_sets : int
        Sets that are tried exhaustively; beyond, a local search.
    seed : int
        Of the local search.

    Returns
    -------
    list of dict
        The columns of `EXPERIMENT`.
    """
    both_ways = ports == "bidirectional"
    count = degree // 2 if both_ways else degree
    half = both_ways and degree % 2 == 1
    moore = moore_bound(servers, degree, both_ways)
    circulant = abelian_bound(servers, count, both_ways, half)
    geometric = select_permutations(servers, count, bidirectional=both_ways)
    steps = geometric
    if both_ways:
        steps = (*geometric, *(servers - p for p in geometric))
    distance = circulant_distances(servers, (*steps, servers // 2) if half else steps)
    rows: list[tuple[str, tuple[int, ...], int, float, bool]] = [
        ("geometric", geometric, int(distance.max()), float(distance.sum()) / (servers - 1), False)
    ]
    for objective in Objective:
        best = select_circulant(
            servers, count, bidirectional=both_ways, half=half, objective=objective,
            most=most_sets, seed=seed,
        )  # fmt: skip
        rows.append(
            (f"least {objective}", best.generators, best.diameter, best.mean_distance, best.exact)
        )
    named = [
        (rule, " ".join(map(str, steps)) + (f" {servers // 2}" if half else ""), far, mean, exact,
         count)
        for rule, steps, far, mean, exact in rows
    ]  # fmt: skip
    for rings in range(count, 0, -1):
        try:
            graph = select_cayley(servers, degree, bidirectional=both_ways, rings=rings, seed=seed)
        except InfeasibleError:
            continue
        named.append(("Cayley", graph.group, graph.diameter, graph.mean_distance, graph.exact,
                      rings))  # fmt: skip
        break
    return [
        {
            "rule": rule,
            "generators": generators,
            "rings": made,
            "diameter_hops": diameter,
            "mean_distance_hops": mean,
            "proven_best": exact,
            "moore_diameter_hops": moore.diameter,
            "moore_mean_hops": moore.mean_distance,
            "circulant_bound_diameter_hops": circulant.diameter,
            "circulant_bound_mean_hops": circulant.mean_distance,
        }
        for rule, generators, diameter, mean, exact, made in named
    ]


def tabulate(rows: Sequence[Row]) -> list[Table]:
    """Return one table a port model: diameter and mean distance of each rule, and the bounds."""
    tables = []
    for ports in dict.fromkeys(row["ports"] for row in rows):
        columns = ("servers", "degree", "rule", "generators", "rings", "diameter_hops",
                   "mean_distance_hops", "proven_best", "circulant_bound_diameter_hops",
                   "circulant_bound_mean_hops", "moore_diameter_hops",
                   "moore_mean_hops")  # fmt: skip
        chosen = [row for row in rows if row["ports"] == ports]
        tables.append(listed(chosen, columns, f"{ports} ports"))
    return tables


EXPERIMENT = Experiment(
    name="circulant-selection",
    description=(
        "Diameter and mean distance of unions of rings: the geometric choice of steps, the "
        "choices of least mean distance and of least diameter, and the best Cayley graph found "
        "that has as many edge-disjoint rings, or the most. proven_best: all sets were tried or "
        "a bound is met (of a Cayley graph: all sets of the groups tried)."
    ),
    source="extends TopoOpt (NSDI 2023), section 4, SelectPermutations",
    grid={
        "servers": [16, 32, 64, 128],
        "degree": [3, 4, 6, 8],
        "ports": ["directed", "bidirectional"],
        "most_sets": [10_000_000],
        "seed": [0],
    },
    quick_grid={
        "servers": [16, 32],
        "degree": [3, 4],
        "most_sets": [100_000],
    },
    columns=(
        "rule",
        "generators",
        "rings",
        "diameter_hops",
        "mean_distance_hops",
        "proven_best",
        "moore_diameter_hops",
        "moore_mean_hops",
        "circulant_bound_diameter_hops",
        "circulant_bound_mean_hops",
    ),
    case=case,
    tabulate=tabulate,
)

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
