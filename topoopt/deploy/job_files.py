"""What the job needs: ranks on hosts, NCCL's and launch settings, collectives as MSCCL files."""

from dataclasses import replace

from parallelism.transformers.layout import Layout
from parallelism.transformers.schedules import schedule_of
from topoopt.deploy.deployment import Deployment
from topoopt.deploy.host_files import ports_of
from topoopt.deploy.launch import (
    PIPELINE_FILE,
    as_megatron_runs,
    megatron,
    question_of,
    torchtitan,
)
from topoopt.deploy.msccl_files import msccl_files
from topoopt.deploy.nccl_tuner import nccl_tuner
from topoopt.deploy.pipeline_order import pipeline_csv
from topoopt.deploy.tables import write_table
from topoopt.plan.plan import Plan
from topoopt.plan.ranks import Rank, fills_servers_in_order, ranks_of
from topoopt.plan.rebuild import rebuild
from topoopt.problem.units import format_time

MASTER_PORT = 29500


def job_files(made: Deployment) -> tuple[dict[str, str], list[str]]:
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
        "rankfile": _rankfile(made, ranks),
    }
    notes: list[str] = []
    for server in made.servers:
        files[f"nccl/{made.name(server)}.conf"] = _nccl(made, server)
    files["nccl/tuner.csv"] = nccl_tuner(made, ranks)
    left_out: list[str] = []
    rounds = msccl_files(made, ranks, left_out)
    files |= rounds
    notes += [*_nccl_notes(made, bool(rounds)), *left_out]
    if (asked := question_of(plan)) is not None:
        lines, left_out = megatron(plan, *asked)
        files["megatron.args"] = "".join(f"{line}\n" for line in lines)
        notes += left_out
        notes += _slower_notes(plan, asked[1])
        lines, left_out = torchtitan(plan, *asked)
        files["torchtitan.toml"] = "".join(f"{line}\n" for line in lines)
        notes += left_out
        layout = asked[1]
        if layout.pipeline > 1:
            files[PIPELINE_FILE] = pipeline_csv(schedule_of(layout, plan.global_batch))
        files["torchrun.sh"] = _torchrun(made)
        if not fills_servers_in_order(plan, ranks):
            notes.append(
                "ranks do not fill hosts one by one in the plan's placement: torchrun.sh does not "
                "give it; start the job with a launcher that reads job/rankfile"
            )
    else:
        notes.append(
            "launch settings are made for plans by layouts; operators and their shards are in "
            "the plan file"
        )
    return files, notes


def _slower_notes(plan: Plan, layout: Layout) -> list[str]:
    """Return what an iteration takes where Megatron-LM runs another schedule than the plan's."""
    runs = as_megatron_runs(layout)
    if runs == layout:
        return []
    built = rebuild(plan)
    took = replace(built, strategy=replace(built.strategy, layout=runs)).simulate().time
    return [
        f"Megatron-LM: by 1F1B an iteration takes {format_time(took)} on the plan's network, "
        f"{took / plan.iteration_time_s:.2f} times the plan's"
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
    return "".join(f"{made.reached_at(server)} slots={gpus}\n" for server in made.servers)


def _rankfile(made: Deployment, ranks: list[Rank]) -> str:
    """Return an Open MPI rank file."""
    return "".join(
        f"rank {rank.number}={made.reached_at(rank.server)} slot={rank.gpu}\n" for rank in ranks
    )


def _torchrun(made: Deployment) -> str:
    gpus = made.plan.job.server.gpus
    return (
        "#!/bin/sh\n"
        "# On host number N (the order of job/hostfile): sh torchrun.sh N SCRIPT ARGUMENTS...\n"
        "set -eu\n"
        "node=$1\n"
        "shift\n"
        f"exec torchrun --nnodes {made.plan.cluster.servers} --nproc-per-node {gpus} "
        f'--node-rank "$node" --master-addr {made.reached_at(0)} --master-port {MASTER_PORT} "$@"\n'
    )


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
    return "".join(f"{line}\n" for line in lines)


def _nccl_notes(made: Deployment, msccl: bool) -> list[str]:
    notes = []
    ends = list(made.port_addresses)
    if not all(made.port(end).rdma for end in ends):
        notes.append("NCCL: ports without an RDMA device in the site file are not in NCCL_IB_HCA")
    if not all(host.management_interface for host in made.site.hosts):
        notes.append(
            "NCCL: hosts without a management interface in the site file choose one for "
            "NCCL_SOCKET_IFNAME themselves"
        )
    servers = made.plan.cluster.servers
    chain = all((v, (v + 1) % servers) in made.cabling.ports_to for v in made.servers)
    if servers > 2 and not chain:
        notes.append(
            "NCCL: its own rings go from host to next host in the order of ranks, and not every "
            "two next hosts share a cable" + ("; use the MSCCL files" if msccl else "")
        )
    return notes
