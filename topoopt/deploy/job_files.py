"""What the job needs: ranks on hosts, NCCL's and launch settings, collectives as MSCCL files."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from codesign_base.counted import counted
from parallelism.transformers.layout import Layout
from parallelism.transformers.placement import Placement
from parallelism.transformers.records import LayoutRecord
from parallelism.transformers.schedules import schedule_of
from topoopt.base.text import ended
from topoopt.deploy.deployment import Deployment
from topoopt.deploy.host_files import ports_of
from topoopt.deploy.launch import as_megatron_runs, megatron, planned_layout
from topoopt.deploy.msccl_files import (
    msccl_files,
    next_hosts,
    reducing_groups,
)
from topoopt.deploy.nccl_tuner import nccl_tuner
from topoopt.deploy.pipeline_order import pipeline_csv
from topoopt.deploy.tables import write_table
from topoopt.deploy.torchtitan import PIPELINE_FILE, torchtitan
from topoopt.plan.plan import Plan
from topoopt.plan.rank_groups import servers_of
from topoopt.plan.ranks import Rank, ranks_of
from topoopt.plan.rebuild import rebuild
from topoopt.problem.units import format_time
from topoopt.topology.ring_links import ring_links
from topoopt.topology.wiring import ring_orders

MASTER_PORT = 29500
# NUM_MAX_NVL_PEERS in csrc/kernels/configs.cuh.
_DEEPEP_GPUS = 8

FilesAndNotes = tuple[dict[str, str], list[str]]
"""Name to text, and notes on what they leave out."""


def job_files(made: Deployment) -> FilesAndNotes:
    """Return the files of the job, and what they leave out.

    Parameters
    ----------
    made : Deployment

    Returns
    -------
    files : dict of str to str
        Name to text.
    notes : list of str
    """
    plan = made.plan
    ranks = ranks_of(plan)
    files = {
        "ranks.csv": _ranks_csv(made, ranks),
        "hostfile": _hostfile(made),
    }
    notes: list[str] = []
    for output in OUTPUTS.values():
        found, said = output(made, ranks)
        files |= found
        notes += said
    if planned_layout(plan) is not None:
        files["torchrun.sh"] = _torchrun(made, ranks)
    else:
        notes.append(
            "launch settings are made for plans by layouts; operators and their shards are in "
            "the plan file"
        )
    return files, notes


def _nccl_files(made: Deployment, ranks: list[Rank]) -> FilesAndNotes:
    files = {f"nccl/{made.name(server)}.conf": _nccl(made, server) for server in made.servers}
    return files | {"nccl/tuner.csv": nccl_tuner(made, ranks)}, _nccl_notes(made, ranks)


def _msccl_files(made: Deployment, ranks: list[Rank]) -> FilesAndNotes:
    notes: list[str] = []
    files = msccl_files(made, ranks, notes)
    return files, notes


def _megatron_file(made: Deployment, _: list[Rank]) -> FilesAndNotes:
    if (asked := planned_layout(made.plan)) is None:
        return {}, []
    lines, notes = megatron(made.plan, *asked)
    if any("--moe-enable-deepep" in line for line in lines):
        notes += _deepep_notes(made.plan)
    notes += _slower_notes(made.plan, asked[1]) if lines else []
    return _file("megatron.args", lines), notes


def _deepep_notes(plan: Plan) -> list[str]:
    """Return a note where DeepEP cannot start: it divides a rank's number by GPUs of a host."""
    record = plan.parallelization
    assert isinstance(record, LayoutRecord)
    placement = Placement(record.layout, plan.job.server.gpus, record.order)
    if placement.experts_together(_DEEPEP_GPUS):
        return []
    return [
        f"DeepEP takes each next {_DEEPEP_GPUS} ranks that share experts for those of one host, "
        "which the plan's placement does not give: it cannot start; plan with another --stack"
    ]


def _torchtitan_file(made: Deployment, _: list[Rank]) -> FilesAndNotes:
    if (asked := planned_layout(made.plan)) is None:
        return {}, []
    lines, notes = torchtitan(made.plan, *asked)
    return _file("torchtitan.toml", lines), notes


def _pipeline_file(made: Deployment, _: list[Rank]) -> FilesAndNotes:
    asked = planned_layout(made.plan)
    if asked is None or asked[1].pipeline == 1:
        return {}, []
    return {PIPELINE_FILE: pipeline_csv(schedule_of(asked[1], made.plan.global_batch))}, []


def _file(name: str, lines: list[str]) -> dict[str, str]:
    return {name: ended(lines)} if lines else {}


OUTPUTS: Mapping[str, Callable[[Deployment, list[Rank]], FilesAndNotes]] = MappingProxyType(
    {
        "nccl": _nccl_files,
        "msccl": _msccl_files,
        "megatron": _megatron_file,
        "torchtitan": _torchtitan_file,
        "pipeline": _pipeline_file,
    }
)
"""What makes the files of one program, by the format of ``topoopt export``."""


def _slower_notes(plan: Plan, layout: Layout) -> list[str]:
    """Return what an iteration takes where Megatron-LM runs another schedule than the plan's."""
    runs = as_megatron_runs(layout)
    if runs == layout:
        return []
    built = rebuild(plan)
    planned = built.simulated.time
    took = replace(built, strategy=replace(built.strategy, layout=runs)).simulated.time
    return [
        f"Megatron-LM: by 1F1B an iteration takes {format_time(took)} on the plan's network, "
        f"{took / planned:.2f} times the plan's"
    ]


def _ranks_csv(made: Deployment, ranks: list[Rank]) -> str:
    axes = list(ranks[0].place)
    rows = (
        (rank.number, made.name(rank.server), rank.gpu, *(rank.place[axis] for axis in axes))
        for rank in ranks
    )
    return write_table(("rank", "host", "gpu", *axes), rows)


def _hostfile(made: Deployment) -> str:
    gpus = made.plan.job.server.gpus
    return ended(f"{made.reached_at(server)} slots={gpus}" for server in made.servers)


def _torchrun(made: Deployment, ranks: list[Rank]) -> str:
    gpus = made.plan.job.server.gpus
    start = (
        f"exec torchrun --nnodes {made.plan.cluster.servers} --nproc-per-node {gpus} "
        f'--node-rank "$node" --master-addr {made.reached_at(0)} --master-port {MASTER_PORT} '
    )
    lines = [
        "#!/bin/sh",
        "# On host number N (the order of job/hostfile): sh torchrun.sh N SCRIPT ARGUMENTS...",
        "set -eu",
        "node=$1",
        "shift",
    ]
    if all((rank.server, rank.gpu) == divmod(rank.number, gpus) for rank in ranks):
        lines.append(f'{start}"$@"')
    else:
        on: dict[int, list[Rank]] = {server: [] for server in made.servers}
        for rank in sorted(ranks, key=lambda rank: rank.gpu):
            on[rank.server].append(rank)
        lines += [
            "# torchrun numbers ranks host by host; these are the plan's, in the order of GPUs.",
            "case $node in",
            *(f"  {host}) ranks='{' '.join(str(rank.number) for rank in here)}' ;;"
              for host, here in on.items()),
            "esac",
            # The store is the agents', so that it does not matter which process is rank 0.
            f"{start}--no-python sh -c '",
            "  gpu=0",
            "  for RANK in $1; do",
            '    if [ "$gpu" = "$LOCAL_RANK" ]; then break; fi',
            "    gpu=$((gpu + 1))",
            "  done",
            "  shift",
            "  export RANK",
            """  exec "${PYTHON_EXEC:-python3}" -u "$@"' sh "$ranks" "$@\"""",
        ]  # fmt: skip
    return ended(lines)


def _nccl(made: Deployment, server: int) -> str:
    """Return NCCL's settings of a host, as /etc/nccl.conf or the file of NCCL_CONF_FILE."""
    lines = [
        f"# {made.name(server)}: copy to /etc/nccl.conf",
        "NCCL_IB_SUBNET_AWARE_ROUTING=1",
        f"NCCL_IB_SUBNET_PREFIX_LEN={made.site.addresses.cable_prefix}",
        "NCCL_IB_ADDR_FAMILY=AF_INET",
        f"NCCL_IB_ADDR_RANGE={made.site.addresses.cables}",
        "NCCL_IB_ROCE_VERSION_NUM=2",
        "NCCL_IB_MERGE_NICS=0",
        "NCCL_CROSS_NIC=1",
    ]
    devices = [made.port(end).rdma for end in ports_of(made, server)]
    if all(devices):
        lines.append(f"NCCL_IB_HCA=={','.join(str(device) for device in devices)}")
    if (interface := made.site.hosts[server].management_interface) is not None:
        lines.append(f"NCCL_SOCKET_IFNAME=={interface}")
    return ended(lines)


def _nccl_notes(made: Deployment, ranks: list[Rank]) -> list[str]:
    notes = []
    ends = list(made.port_addresses)
    if not all(made.port(end).rdma for end in ends):
        notes.append("NCCL: ports without an RDMA device in the site file are not in NCCL_IB_HCA")
    if not all(host.management_interface for host in made.site.hosts):
        notes.append(
            "NCCL: hosts without a management interface in the site file choose one for "
            "NCCL_SOCKET_IFNAME themselves"
        )
    return notes + _ring_notes(made, ranks)


def _ring_notes(made: Deployment, ranks: list[Rank]) -> list[str]:
    """Return how NCCL's own rings differ from the plan's.

    In each of its channels a ring goes from host to next host, in the order of the group's ranks
    (connectRings in src/graph/connect.cc).
    """
    rings = ring_orders(ring.wired for ring in made.plan.rings)
    groups = without = ringless = some = none = 0
    for group in reducing_groups(made.plan, ranks).values():
        servers = servers_of(group)
        if len(servers) == 1:
            continue
        groups += 1
        steps = next_hosts(group)
        alike = {set(ring_links(ring)) == steps for ring in rings.get(servers, ())}
        if not all(step in made.cabling.ports_to for step in steps):
            without += servers in rings
            ringless += servers not in rings
        elif alike == {False}:
            none += 1
        elif alike == {False, True}:
            some += 1
    notes = []
    of = f"of {counted(groups, 'group that reduces', 'groups that reduce')}"
    own = "NCCL: all of its own rings go from host to next host in the order of ranks; for"
    files = "the MSCCL files have the plan's"
    if without:
        notes.append(f"{own} {without} {of} not every two of these share a cable; {files}")
    if ringless:
        notes.append(f"{own} {ringless} {of} not every two of these share a cable")
    if none:
        notes.append(f"{own} {none} {of} the plan has others; {files}")
    if some:
        notes.append(
            f"{own} {some} {of} the plan has others as well, whose cables NCCL leaves idle; {files}"
        )
    return notes
