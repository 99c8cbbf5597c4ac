"""What each departure from the paper's topology finder earns, workload by workload."""

from collections.abc import Sequence
from dataclasses import replace

from topoopt import models
from topoopt.evaluate.rewire import Rewirer
from topoopt.experiment import Experiment, Figures, Row, Table, pivots, run_from_command_line
from topoopt.experiment.plots import PALETTE, mean_and_whiskers, panels_of
from topoopt.problem.budget import Budget
from topoopt.problem.options import Improvements, SearchOptions
from topoopt.search.driver import run, start
from topoopt.search.methods import search_for
from topoopt.studies.setting import setting

NONE = Improvements(exact=False, traffic=False, splits=False, groups=False)
VARIANTS = {
    "all": Improvements(),
    # Surplus ports, wirings of bidirectional ports and ECMP are tried all the same.
    "none": NONE,
    "only exact": replace(NONE, exact=True),
    "only traffic": replace(NONE, traffic=True),
    "only splits": replace(NONE, splits=True),
    "only groups": replace(NONE, groups=True),
    "without exact": Improvements(exact=False),
    "without traffic": Improvements(traffic=False),
    "without splits": Improvements(splits=False),
    "without groups": Improvements(groups=False),
}


def case(
    model: str, servers: int, degree: int, bandwidth_gbps: float, steps: int, seed: int
) -> list[dict[str, object]]:
    """Wire the same strategies with each set of improvements; one row a strategy and set.

    Parameters
    ----------
    model : str
        A preset; its batch per GPU and the default server and roofline are used.
    servers, degree : int
    bandwidth_gbps : float
        Of a port, each way.
    steps : int
        Proposals of the search whose best strategy is wired.
    seed : int

    Returns
    -------
    list of dict
        The columns of `EXPERIMENT`; builder ``paper`` is the paper's finder with its routing.
    """
    given = setting(models.get_model(model), servers, degree, bandwidth_gbps)
    search = search_for(given.problem(SearchOptions(method="alternating"), seed))
    found = run(search, Budget(steps=steps))
    strategies = {"searched": found.best.strategy}
    starts, _, _ = start(search)
    strategies |= {pair.origin: pair.strategy for pair in starts[:4]}
    rows: list[dict[str, object]] = []
    for name, strategy in strategies.items():
        plain = Rewirer(given.problem(SearchOptions(faithful="paper"), seed))
        paper = plain.wire(strategy, name)
        assert paper is not None  # no limit
        rows.append({"strategy": name, "builder": "paper", "iteration_time_s": paper.time,
                     "relative_time": 1.0, "work": plain.work})  # fmt: skip
        for variant, improvements in VARIANTS.items():
            rewirer = Rewirer(given.problem(SearchOptions(improvements=improvements), seed))
            pair = rewirer.wire(strategy, name)
            assert pair is not None  # no limit
            rows.append({"strategy": name, "builder": variant, "iteration_time_s": pair.time,
                         "relative_time": pair.time / paper.time,
                         "work": rewirer.work})  # fmt: skip
    return rows


def tabulate(rows: Sequence[Row]) -> list[Table]:
    """Return, for each cluster, the times relative to the paper's builder."""
    tables = []
    for servers, degree in dict.fromkeys((row["servers"], row["degree"]) for row in rows):
        chosen = [row for row in rows if (row["servers"], row["degree"]) == (servers, degree)]
        title = f"{servers} servers, degree {degree}: iteration time over the paper's builder's"
        label = "{model}, {bandwidth_gbps} Gbps, seed {seed}, {strategy}"
        tables += pivots(
            chosen, {"relative_time": title}, columns="builder", label=label, first="paper"
        )
    return tables


def draw(rows: Sequence[Row]) -> Figures:
    """Draw the time saved over the paper's builder, a bar a set; a panel a job.

    Bars are means over strategies and seeds, and whiskers reach from the worst to the best.
    """
    jobs = list(dict.fromkeys((r["model"], r["degree"], r["bandwidth_gbps"]) for r in rows))
    builders = list(dict.fromkeys(row["builder"] for row in rows))
    figure, panels = panels_of(len(jobs), wide=4, size=(3.1, 3.4), share_y=True)
    for number, (axes, job) in enumerate(zip(panels, jobs, strict=True)):
        for at, builder in enumerate(builders):
            found = [
                100 * (1 - float(row["relative_time"] or 0)) for row in rows
                if (row["model"], row["degree"], row["bandwidth_gbps"]) == job
                and row["builder"] == builder
            ]  # fmt: skip
            mean, below, above = mean_and_whiskers(found)
            name = str(builder)
            colour = PALETTE[2 if name.startswith("only") else 3 if name.startswith("with") else 7]
            axes.barh(at, mean, 0.75, color=colour, xerr=[[below], [above]],
                      capsize=2, ecolor="#555555")  # fmt: skip
        axes.set_yticks(range(len(builders)), [str(b) for b in builders] if number == 0 else None)
        if number == 0:
            axes.invert_yaxis()
        axes.axvline(0.0, color=PALETTE[0], linewidth=0.8)
        axes.set_title(f"{job[0]}, d={job[1]}, {job[2]} Gbps", fontsize="medium")
        axes.set_xlabel("time saved over paper's builder [%]")
    return {"topology-ablation": figure}


EXPERIMENT = Experiment(
    name="topology-ablation",
    description=(
        "Iteration time of the same strategies on wirings of the paper's finder and with exact "
        "generators, traffic awareness, all degree splits and rings of Cayley graphs, "
        "alone and left out."
    ),
    source="extends TopoOpt (NSDI 2023), section 4",
    grid={
        "model": ["dlrm-16", "candle-16", "bert-16", "ncf", "resnet50", "vgg16-16"],
        "servers": [16, 32, 64, 128],
        "degree": [4, 8],
        "bandwidth_gbps": [25],
        "steps": [200],
        "seed": [0],
    },
    quick_grid={
        "model": ["dlrm-16", "candle-16"],
        "servers": [16],
        "degree": [4],
        "bandwidth_gbps": [25],
        "steps": [200],
        "seed": [0],
    },
    columns=("strategy", "builder", "iteration_time_s", "relative_time", "work"),
    case=case,
    tabulate=tabulate,
    draw=draw,
)

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
