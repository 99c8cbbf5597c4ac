"""Several independent searches of one job, on any engine, of which the best plan is kept.

Every search has a seed of its own, derived from the given one, so that neither the engine nor the
number of workers changes the answer. Finished searches are kept in a checkpoint file, and those
under way in files beside it.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

from codesign_base import InputError
from topoopt.base.answers import read_answers, write_answers
from topoopt.base.calls import Call
from topoopt.base.engine import LOCAL, check_engine, run_jobs
from topoopt.base.interrupts import interrupts_between_steps
from topoopt.base.progress import Progress, ProgressCallback
from topoopt.baselines.baseline import BaselineFabric
from topoopt.baselines.baselines import seed_matters
from topoopt.codesign.once import optimize_once
from topoopt.codesign.question import PlanQuestion
from topoopt.plan.plan import Plan, parse_plan
from topoopt.plan.records import Baseline
from topoopt.problem.seeds import restart_seed
from topoopt.search.search_state import StateFile

CHECKPOINT_SCHEMA = "topoopt-checkpoint/2"


def co_optimize_with_restarts(
    asked: PlanQuestion,
    *,
    checkpoint: str | Path | None,
    progress: ProgressCallback | None,
) -> Plan:
    """Run independent searches and return the plan of the best.

    Parameters
    ----------
    asked : PlanQuestion
        Its options name ``restarts`` searches, each with the whole budget, ``workers`` at a time
        (results do not depend on it) on ``engine`` (see `topoopt.base.engine`).
    checkpoint : path or None
        File that keeps finished searches; those in it are not made again. It serves more
        restarts of the same question, too. Searches under way keep their states in files beside
        it (``CHECKPOINT.search-0`` and so on) between rounds, and go on from there to the same
        plan, whatever stopped them; not where Ray runs them.
    progress : callable or None

    Returns
    -------
    Plan
        That with the lowest iteration time (confirmed mean where packet trains confirm; ties to
        the lowest place), with its own seed: a search with that seed and its steps alone finds
        it again. Fabrics compared with take the fastest strategy that any of the searches found
        for them, except those that depend on the seed. Marked as interrupted after Ctrl-C.

    Raises
    ------
    InputError
        If the engine is unknown, or the checkpoint is unreadable or of another question.
    KeyboardInterrupt
        On Ctrl-C before any search had a result.
    """
    options = asked.options
    restarts, workers, engine = options.restarts, options.workers, options.engine
    check_engine(engine, workers)
    # How many run at a time, and where, changes no plan.
    asked = replace(asked, options=replace(options, workers=1, engine=LOCAL))
    kept = _Checkpoint(checkpoint, "" if checkpoint is None else _hash(asked))
    plans = {place: plan for place, plan in kept.plans.items() if place < restarts}
    todo = [place for place in range(restarts) if place not in plans]
    alone = workers == 1 and engine == LOCAL
    interrupted = False
    with interrupts_between_steps(progress) as report:

        def finished(number: int, plan: Plan) -> None:
            place = todo[number]
            plans[place] = plan
            if plan.search.interrupted:
                raise KeyboardInterrupt
            kept.add(place, plan)
            if restarts > 1:
                best = min(p.iteration_time_s for p in plans.values())
                report(Progress("restarts", len(plans), restarts, best))

        calls = [
            Call(
                optimize_once,
                {
                    "asked": replace(asked, seed=restart_seed(asked.seed, place)),
                    "progress": report if alone else None,
                    "keeper": kept.state(place) if engine == LOCAL else None,
                },
            )
            for place in todo
        ]
        interrupted = run_jobs(calls, workers=workers, engine=engine, finished=finished).interrupted
    if not plans:
        raise KeyboardInterrupt
    best = min(plans, key=lambda place: (plans[place].time_s, place))
    record = replace(
        plans[best].search,
        restart=best,
        first_seed=asked.seed if restarts > 1 else None,
        interrupted=interrupted or plans[best].search.interrupted,
    )
    return replace(plans[best], search=record, baselines=_baselines(plans, best))


def _baselines(plans: Mapping[int, Plan], best: int) -> dict[str, Baseline]:
    """Return the fastest find of all searches for each fabric that was the same to them.

    By packets where all of them say what these take, as fabrics are compared then; else by flows.
    """
    chosen = dict(plans[best].baselines)
    # In the order of the searches, not of their ends: of equal finds the first counts.
    searches = [plans[place] for place in sorted(plans)]
    for name, own in chosen.items():
        others = [plan.baselines[name] for plan in searches if name in plan.baselines]
        packets = all(each.packet_time_s is not None for each in others)
        kind = attrgetter("packet_time_s" if packets else "iteration_time_s")
        fastest = min(others, key=kind)
        if not seed_matters(name) and kind(fastest) < kind(own):
            # Another search's plan is not this one's.
            origin = "search" if fastest.origin == "plan" else fastest.origin
            chosen[name] = replace(fastest, origin=origin)
    return chosen


class _Checkpoint:
    """Finished searches of one question in a file, or nowhere."""

    def __init__(self, path: str | Path | None, question: str) -> None:
        self.plans: dict[int, Plan] = {}
        self._path = None if path is None else Path(path)
        self._question = question
        if self._path is None:
            return
        kept = read_answers(self._path, "checkpoint", CHECKPOINT_SCHEMA, self._question)
        for place, plan in kept.items():
            self.plans[int(place)] = parse_plan(json.dumps(plan), f"checkpoint {path}")

    def state(self, place: int) -> StateFile | None:
        """Return what keeps the state of a search under way, in a file beside this one."""
        if self._path is None:
            return None
        path = self._path.with_name(f"{self._path.name}.search-{place}")
        return StateFile(path, f"{self._question} {place}")

    def add(self, place: int, plan: Plan) -> None:
        """Keep a finished search, and write the file anew."""
        self.plans[place] = plan
        if self._path is None:
            return
        plans = {str(each): json.loads(kept.to_json()) for each, kept in sorted(self.plans.items())}
        write_answers(self._path, CHECKPOINT_SCHEMA, self._question, plans)
        under_way = self.state(place)
        if under_way is not None:
            under_way.remove()


def _hash(asked: PlanQuestion) -> str:
    """Return a hash of everything that an answer depends on, but for the number of restarts."""
    for fabric in asked.baselines:
        if isinstance(fabric, BaselineFabric):
            raise InputError(
                f"checkpoint with the fabric {fabric.fabric.name!r} of your own: it cannot be "
                "kept; leave out the checkpoint, or compare with named fabrics"
            )
    content = replace(asked, options=replace(asked.options, restarts=1)).record()
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
