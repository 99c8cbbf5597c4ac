"""The generated files in network namespaces: every pair reached, over the cables of the plan.

Then one cable is pulled, and what-if's repair applied.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

from codesign_base.counted import counted
from topoopt.deploy.cabling import End
from topoopt.deploy.check import MOST_FAULTS, planned_shares
from topoopt.deploy.deployment import Deployment
from topoopt.deploy.forwarding import Channel
from topoopt.deploy.namespaces import (
    has_flower,
    has_seed,
    namespaces,
    pull,
    run_script,
    state_folder,
    state_of,
)
from topoopt.deploy.probes import FIRST_TTL, Prober, ProbeTrace
from topoopt.deploy.pulled_check import Repair
from topoopt.deploy.read_back import Files

# Probes of a pair whose packets are divided; which way one takes is up to a hash of its ports.
_MANY = 64
# After a repair, whose shares are equal and were followed in the files.
_SOME = 8
_DEVIATIONS = 5.0
_NEVER = 1e-6


@dataclass(frozen=True)
class Tried:
    """What a trial in namespaces found.

    Parameters
    ----------
    faults : tuple of str
    pairs, probes : int
        Ordered pairs of servers, and probes sent between them.
    cables : int
        Cables, or RDMA channels, that a probe was sent over from port to port.
    rdma : bool
        Whether the RDMA rules were applied; if not this kernel lacks their filters.
    seeded : bool
        Whether all shares were compared; if not this kernel divides alike in all namespaces, as
        no two hosts do, so that shares of a second division mean nothing.
    pulled : str or None
        Label of the cable that was pulled; None if none can be spared, or faults came before.
    """

    faults: tuple[str, ...]
    pairs: int
    probes: int
    cables: int
    rdma: bool
    seeded: bool
    pulled: str | None


def try_files(made: Deployment, files: Files, repair: Repair | None) -> Tried:
    """Apply the files in namespaces, send probes between all pairs, and take them back.

    Scripts are applied twice, which must change nothing, and undone, after which rules, routes,
    neighbours and settings must be as before. Then a cable is pulled, after which nothing comes
    over it, and the scripts of the repair take the place of the first ones: all pairs must reach
    each other over its paths.

    Parameters
    ----------
    made : Deployment
    files : mapping of str to str
    repair : Repair or None
        Without one, and where there are faults before, no cable is pulled.

    Returns
    -------
    Tried

    Raises
    ------
    InputError
        If a file is not understood, or a script fails.
    """
    rdma = has_flower()
    scripts = ("routes.sh", "rdma.sh") if rdma else ("routes.sh",)
    with (
        state_folder() as folder,
        namespaces(made, files) as spaces,
    ):

        def state() -> dict[int, list[str]]:
            return {server: state_of(space) for server, space in spaces.items()}

        def run(verb: str, files: Files = files, servers: Iterable[int] = made.servers) -> None:
            for server in servers:
                for script in scripts if verb == "apply" else scripts[::-1]:
                    text = files[f"hosts/{made.name(server)}/{script}"]
                    run_script(spaces[server], text, verb, folder)

        before = state()
        run("apply")
        applied = state()
        addresses = {server: made.host_address(server) for server in made.servers}
        faults: list[str] = []
        with closing(Prober(spaces, addresses)) as prober:
            pairs, probes = _pairs(made, prober, faults)
            chosen = [
                channel for channel in made.channels.channels if rdma or _joined(made, channel)
            ]
            for channel in chosen:
                faults += _channel(made, prober, channel)
                if len(faults) >= MOST_FAULTS:
                    break
        run("apply")
        faults += _differing(made, applied, state(), "applied a second time")
        run("undo")
        faults += _differing(made, before, state(), "undone")
        if faults or repair is None:
            return Tried(tuple(faults), pairs, probes, len(chosen), rdma, has_seed(), None)
        ends = repair.cable.source, repair.cable.target
        with closing(Prober(spaces, addresses)) as prober:
            run("apply", servers={end[0] for end in ends})
            pull(made, spaces, repair.cable)
            found = []
            if _heard(made, prober, *ends):
                found.append(f"cable {repair.label} was pulled, but still carries packets")
            run("undo", servers={end[0] for end in ends})
            run("apply", repair.files)
            probes += _pairs(repair.made, prober, found, _SOME)[1]
        run("undo", repair.files)
        pull(made, spaces, repair.cable, back=True)
        found += _differing(made, before, state(), "of the repair undone")
    faults += [f"without cable {repair.label}: {fault}" for fault in found]
    return Tried(tuple(faults), pairs, probes, len(chosen), rdma, has_seed(), repair.label)


def _heard(made: Deployment, prober: Prober, end: End, other: End) -> bool:
    """Whether a packet from a cable's one end comes out of its other."""
    trace = prober.port(
        end[0], made.port(end).interface, made.port_address(end), made.port_address(other)
    )
    return bool(trace.stops)


def _differing(
    made: Deployment, one: dict[int, list[str]], other: dict[int, list[str]], what: str
) -> Iterator[str]:
    for server in made.servers:
        if one[server] != other[server]:
            line = sorted(set(one[server]) ^ set(other[server]))
            yield f"{made.name(server)}: scripts {what} leave a difference: {' '.join(line[:1])}"


def _joined(made: Deployment, channel: Channel) -> bool:
    """Whether a channel is one ordinary cable, whose two ends share a subnet."""
    return made.cabling.leads_to.get(channel.target) == channel.source and len(channel.hops) == 1


def _pairs(
    made: Deployment, prober: Prober, faults: list[str], many: int = _MANY
) -> tuple[int, int]:
    """Send probes between all pairs; return how many pairs and probes these were."""
    interfaces: dict[tuple[int, int], set[str]] = defaultdict(set)
    for end, other in made.cabling.leads_to.items():
        interfaces[end[0], other[0]].add(made.port(other).interface)
    pairs = probes = 0
    for source in made.servers:
        if len(faults) >= MOST_FAULTS:
            break
        planned = {
            target: planned_shares(made, source, target)
            for target in made.servers
            if target != source
        }
        # Packets are divided, too, where two cables join the same servers.
        counts = {
            target: 1
            if all(
                share > 1 - _NEVER and len(made.cabling.ports_to[link]) == 1
                for link, share in shares.items()
            )
            else many
            for target, shares in planned.items()
        }
        for target, traces in prober.pairs(source, counts).items():
            pairs += 1
            probes += len(traces)
            fault = _compare(made, source, target, traces, planned[target], interfaces)
            if fault:
                faults.append(f"{made.name(source)} to {made.name(target)}: {fault}")
    return pairs, probes


def _compare(
    made: Deployment,
    source: int,
    target: int,
    traces: list[ProbeTrace],
    planned: dict[tuple[int, int], float],
    interfaces: Mapping[tuple[int, int], set[str]],
) -> str | None:
    """Return how probes of a pair went otherwise than planned."""
    lost = sum(trace.taken != target for trace in traces)
    if lost:
        return f"{lost} of {counted(len(traces), 'packet')} did not arrive"
    counts: Counter[tuple[int, int]] = Counter()
    for trace in traces:
        at = source
        for number, (server, device, ttl) in enumerate(trace.stops):
            if ttl != FIRST_TTL - number:
                return f"a packet has a time to live of {ttl} at {made.name(server)}"
            if device not in interfaces.get((at, server), ()):
                return (
                    f"a packet comes to {made.name(server)} over {device}, where no cable from "
                    f"{made.name(at)} is planned"
                )
            counts[at, server] += 1
            at = server
        if at != target:
            return f"a packet was last heard at {made.name(at)}"
    many = len(traces)
    for link in sorted({*counts, *planned}):
        share, found = planned.get(link, 0.0), counts[link] / many
        spread = _DEVIATIONS * math.sqrt(max(share * (1 - share), 0.0) / many) + 2 / many
        missing = not counts[link] and share > 0 and (1 - min(share, 1)) ** many < _NEVER
        amiss = missing or (many > 1 and abs(found - share) > spread)
        if not share or (amiss and (link[0] == source or has_seed())):
            return (
                f"{counts[link]} of {counted(many, 'packet')} went from {made.name(link[0])} to "
                f"{made.name(link[1])}, the plan has {share:.1%}"
            )
    return None


def _channel(made: Deployment, prober: Prober, channel: Channel) -> Iterator[str]:
    first, last = made.port(channel.source).interface, made.port(channel.target).interface
    server, target = channel.source[0], channel.target[0]
    trace = prober.port(
        server, first, made.port_address(channel.source), made.port_address(channel.target)
    )
    # Filters redirect without taking one off the time to live: arrivals have no order.
    heard = sorted((at, device) for at, device, _ in trace.stops)
    # On the way it is taken by the function for forwarding, if the port has one.
    on_way = [(port[0], made.port(port)) for _, port in channel.hops[:-1]]
    planned = [(at, (port.forward or port).interface) for at, port in on_way]
    if trace.taken != target or heard != sorted([*planned, (target, last)]):
        yield (
            f"RDMA from {made.name(server)} {first} to {made.name(target)} {last}: heard at "
            f"{', '.join(f'{made.name(at)} {device}' for at, device in heard) or 'no port'}"
        )
