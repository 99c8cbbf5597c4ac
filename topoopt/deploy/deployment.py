"""A plan on a site: cables, addresses, next hops and channels, all that the files are made of."""

from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Network
from itertools import islice

from codesign_base import InfeasibleError
from routing.network import Network
from routing.routes import Routes
from topoopt.deploy.cabling import Cabling, End, cable_plan
from topoopt.deploy.forwarding import Channels, Forwarding, channels, forwarding
from topoopt.deploy.site import PortSpec, Site, check_names, check_site, default_site
from topoopt.plan.plan import Plan
from topoopt.plan.rebuild import rebuild_fabric


@dataclass(frozen=True)
class Deployment:
    """A plan and the site that it is built on.

    Parameters
    ----------
    plan : Plan
    site : Site
    network : Network
    routes : Routes
    cabling : Cabling
    built : Cabling, optional
        All cables that were laid, by which addresses and labels go; by default those there are.
    """

    plan: Plan
    site: Site
    network: Network
    routes: Routes
    cabling: Cabling
    built: Cabling | None = None

    @property
    def laid(self) -> Cabling:
        """All cables that were laid, also those that have been pulled since."""
        return self.built or self.cabling

    @property
    def servers(self) -> range:
        """All servers."""
        return range(self.plan.cluster.servers)

    @property
    def degree(self) -> int:
        """Ports of each server that the plan may use; a site's further ones are left alone."""
        return self.plan.cluster.degree

    def name(self, server: int) -> str:
        """Return a server's host name."""
        return self.site.hosts[server].name

    def port(self, end: End) -> PortSpec:
        """Return what the site says of a port."""
        return self.site.hosts[end[0]].ports[end[1]]

    def reached_at(self, server: int) -> str:
        """Return the address, or else the name, that a host is logged in at."""
        return self.site.hosts[server].management or self.name(server)

    def host_address(self, server: int) -> str:
        """Return a server's own address, that of its loopback interface."""
        return str(IPv4Network(self.site.addresses.hosts)[server + 1])

    @cached_property
    def port_addresses(self) -> dict[End, tuple[str, int]]:
        """Address and prefix length of each port in use.

        The two ends of a cable that carries both ways share a subnet of two addresses and with
        it the prefix by which NCCL finds the device for a peer (``NCCL_IB_SUBNET_AWARE_ROUTING``,
        ncclIbFindDevBySubnet in src/transport/net_ib/connect.cc). Ports with fibres to two
        different servers have a subnet of their own, and no peer in it. Cables that were pulled
        count, so that no address changes.
        """
        block, prefix = self.site.addresses.cables, self.site.addresses.cable_prefix
        subnets = IPv4Network(block).subnets(new_prefix=prefix)
        found: dict[End, tuple[str, int]] = {}
        for cable in self.laid.cables:
            if cable.both_ways:
                # In larger subnets the first address is the subnet's own.
                one, other = islice(next(subnets), prefix < 31, 2 + (prefix < 31))
                found[cable.source], found[cable.target] = (str(one), prefix), (str(other), prefix)
        for end in sorted({*self.laid.leads_to, *self.laid.leads_to.values()} - found.keys()):
            found[end] = str(next(subnets)[prefix < 31]), 32
        return found

    def port_address(self, end: End) -> str:
        """Return a port's address."""
        return self.port_addresses[end][0]

    def mac(self, end: End, *, forward: bool = False) -> str:
        """Return the MAC address of a port, or of its function for packets of others.

        What the site does not say is a locally administered one, made of the two numbers.
        """
        port = self.port(end)
        given = (port.forward.mac if port.forward else None) if forward else port.mac
        if given is not None:
            return given
        server, index = end
        parts = (0x02, 0x54, server >> 8 & 255, server & 255, index, int(forward))
        return ":".join(f"{part:02x}" for part in parts)

    @cached_property
    def forwarding(self) -> Forwarding:
        """Next hops of every server."""
        return forwarding(self.network, self.routes, self.cabling)

    @cached_property
    def channels(self) -> Channels:
        """RDMA connections and the way of their packets."""
        return channels(self.network, self.routes, self.cabling)


def deployment(plan: Plan, site: Site | None = None) -> Deployment:
    """Put a plan on a site.

    Parameters
    ----------
    plan : Plan
    site : Site, optional
        By default one of made-up names.

    Returns
    -------
    Deployment

    Raises
    ------
    InputError
        If the site names something twice, or the plan's routes are not well formed.
    InfeasibleError
        If the site cannot carry the plan.
    """
    if site is None:
        site = default_site(plan.cluster.servers, plan.cluster.degree)
    check_names(site)
    check_site(site, plan)
    fabric = rebuild_fabric(plan)
    made = Deployment(plan, site, fabric.network, fabric.routes, cable_plan(plan, site))
    taken: set[str] = set()
    for end in made.port_addresses:
        macs = made.mac(end), made.mac(end, forward=made.port(end).forward is not None)
        for mac in dict.fromkeys(macs):
            if mac in taken:
                raise InfeasibleError(
                    f"MAC address {mac} of the site is one that another port is given; name the "
                    "MAC addresses of all ports"
                )
            taken.add(mac)
    return made
