"""What a deployment leaves out or assumes, said in sentences."""

from codesign_base.counted import counted
from topoopt.deploy.deployment import Deployment
from topoopt.deploy.technician import label


def deploy_notes(made: Deployment) -> list[str]:
    """Return what about cables, addresses and routes must be known.

    Parameters
    ----------
    made : Deployment
    """
    notes = []
    gone = set(made.laid.cables) - set(made.cabling.cables)
    for name in sorted(label(made, cable) for cable in gone):
        notes.append(
            f"cable {name} is left out: routes are shortest paths anew, addresses stay, and rings "
            "that go over it are routed around; topoopt what-if tells what that costs"
        )
    ports = [made.port(end) for end in made.port_addresses]
    fibres = sum(not cable.both_ways for cable in made.cabling.cables)
    if fibres:
        notes.append(
            f"{fibres} of {counted(len(made.cabling.cables), 'cable')} are single fibres that "
            "carry one direction: they need ports whose transmit and receive fibres are split, "
            "and hosts that bring a port up without hearing its peer; plan with --ports "
            "bidirectional for ordinary cables"
        )
        notes.append(
            "NetBox: ports with two fibres to different hosts are two interfaces there, named "
            "with -tx and -rx"
        )
    found = made.channels
    if found.one_way:
        notes.append(
            f"RDMA: {found.one_way} of {counted(len(found.channels), 'way')} between ports go over "
            "fibres of one direction, so that acknowledgements cannot return to the sending port: "
            "reliable connections fail there, TCP over the hosts' own addresses works"
        )
    if found.merged:
        notes.append(
            f"RDMA: {counted(found.merged, 'planned path is', 'planned paths are')} left out, "
            "because another with the same ports at its ends carries more; filters by address "
            "cannot split what goes between two ports"
        )
    through = any(len(channel.hops) > 1 for channel in found.channels)
    bare = sum(port.rdma is not None and port.forward is None for port in ports)
    if through and bare:
        notes.append(
            "RDMA: no function for forwarding is named at "
            f"{counted(bare, 'port')} with an RDMA device; adapters take RoCE packets for other "
            "hosts for their own there, so that hops through hosts fail unless the adapter "
            "forwards them itself"
        )
    if any(len(hops) > 1 for hops in (*made.forwarding.local.values(),
                                      *made.forwarding.transit.values())):  # fmt: skip
        notes.append(
            "routes with several next hops divide connections, not packets: shares hold over "
            "many connections, and in whole-number weights of up to 256"
        )
    made_up = sum(port.mac is None for port in ports)
    if made_up:
        notes.append(
            f"the site file has no MAC address of {counted(made_up, 'port')}; netplan gives "
            "locally administered ones there"
        )
    return notes
