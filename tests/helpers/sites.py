"""Sites for small plans, with all that a site file may say."""

import functools

from small_plans import small_dlrm, solve

from topoopt.deploy.site import ForwardSpec, HostSpec, PanelSpec, PortSpec, Site


def full_site(servers, degree, *, panels=0, spare=1, forward=True):
    """Return hosts with RDMA devices, MAC addresses and places; ``panels`` 0, 1 or one a port."""
    hosts = []
    for v in range(servers):
        ports = []
        for p in range(degree + spare):
            number = v * (degree + spare) + p + 1
            at = {}
            if panels and p < degree:
                panel = p % panels
                at = {"panel": f"ocs-{panel}", "position": number}
            ports.append(
                PortSpec(
                    interface=f"enp{p}s0np{p}",
                    rdma=f"mlx5_{p}",
                    mac=f"b8:ce:f6:00:{v:02x}:{p:02x}",
                    forward=ForwardSpec(interface=f"enp{p}s0v0") if forward else None,
                    **at,
                )
            )
        hosts.append(
            HostSpec(
                name=f"node-{v}.lab",
                management=f"192.0.2.{v + 1}",
                management_interface="eno1",
                place_m=(1.5 * v, 0.0, 0.5),
                ports=ports,
            )
        )
    listed = [PanelSpec(name=f"ocs-{i}", positions=1000) for i in range(panels)]
    return Site(hosts=hosts, panels=listed)


@functools.cache
def split_plan():
    """Return a plan of five servers, some of whose ports have fibres to two servers."""
    return solve(small_dlrm(3), 5, 3, method="alternating", steps=10)
