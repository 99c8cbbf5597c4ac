"""The files of each host: netplan, routes, and forwarding of RDMA packets for other hosts."""

from collections import defaultdict
from shlex import quote

import yaml

from routing.clos.tables import ROCE_PORT
from topoopt.base.text import ended
from topoopt.deploy.cabling import End
from topoopt.deploy.deployment import Deployment
from topoopt.deploy.forwarding import Hops

PROTOCOL, RDMA_PROTOCOL = 84, 85
"""Mark routes, rules and neighbours that are ours, so that nothing else is ever removed."""

TABLES = 20_000
"""Routes for packets of server v are in the table of this number plus v."""

FILTERS = (84, 85)
"""Preferences of traffic-control filters: of plain packets, and of those with a VLAN tag."""

_HEAD = """#!/bin/sh
# {purpose}
# Host {name}. As root: sh {file} apply, or sh {file} undo. Both may be run again at any time.
set -eu
STATE="${{TOPOOPT_STATE:-/run/topoopt}}"/{saved}
"""

_MAIN = """
case "${1:-}" in
  apply) apply ;;
  undo) undo ;;
  *) echo "usage: sh $0 apply|undo" >&2; exit 2 ;;
esac
"""

# Settings are kept as they were before the first change, and put back by undo. They are read all
# at once, since a check starts these programs for every host several times; a shell that reads
# /proc itself, byte by byte, would get the first digit of a number alone.
_ROUTES = """
put() {
  case "$now" in
    *"
$1:"*) ;;
    *) case "$1" in *_seed) return 0 ;; esac
      echo "this kernel has no setting $1" >&2
      return 1 ;;
  esac
  old=${now#*"
$1:"}
  old=${old%%%%"
"*}
  case "$kept" in *"
$1 "*) ;; *) echo "$1 $old" >> "$STATE" ;; esac
  [ "$old" = "$2" ] || echo "$2" > "/proc/sys/$1"
}

undo() {
  ip -4 -batch - <<'END'
%(ours)sEND
  [ -e "$STATE" ] || return 0
  while read -r key value; do
    [ ! -e "/proc/sys/$key" ] || echo "$value" > "/proc/sys/$key"
  done < "$STATE"
  rm "$STATE"
}

apply() {
  mkdir -p "${STATE%%/*}"
  kept=
  [ ! -e "$STATE" ] || kept="
$(cat "$STATE")"
  now="
$(cd /proc/sys && grep -Hs . net/ipv4/conf/*/forwarding net/ipv4/conf/*/rp_filter \\
    net/ipv4/conf/*/*_redirects net/ipv4/fib_multipath_hash_*)" || true
  while read -r key value; do
    put "$key" "$value"
  done <<'END'
%(settings)sEND
  ip -4 -batch - <<'END'
%(ours)s%(commands)sEND
}
"""

_RDMA = """
undo() {
  ip -4 -batch - <<'END'
%(ours)sEND
  tc -force -batch - 2>/dev/null <<'END' || true
%(old)sEND
  [ -e "$STATE" ] || return 0
  while read -r device; do
    tc qdisc del dev "$device" clsact 2>/dev/null || true
  done < "$STATE"
  rm "$STATE"
}

apply() {
  undo
  mkdir -p "${STATE%%/*}"
  ip -4 -batch - <<'END'
%(commands)sEND
  while read -r device; do
    if tc qdisc add dev "$device" clsact 2>/dev/null; then echo "$device" >> "$STATE"; fi
  done <<'END'
%(devices)sEND
  tc -batch - <<'END'
%(filters)sEND
}
"""


def netplan(made: Deployment, server: int) -> str:
    """Return a host's netplan file: addresses, MAC addresses that are given to it, and MTU.

    Parameters
    ----------
    made : Deployment
    server : int
    """
    ethernets: dict[str, dict[str, object]] = {
        "lo": {"match": {"name": "lo"}, "addresses": [f"{made.host_address(server)}/32"]}
    }
    for end in ports_of(made, server):
        port = made.port(end)
        address, prefix = made.port_addresses[end]
        ethernets[port.interface] = _ethernet(
            made, None if port.mac else made.mac(end), [f"{address}/{prefix}"]
        )
        if port.forward:
            own = None if port.forward.mac else made.mac(end, forward=True)
            ethernets[port.forward.interface] = _ethernet(made, own, [])
    document = {"network": {"version": 2, "renderer": "networkd", "ethernets": ethernets}}
    head = f"# Ports of {made.name(server)}, for /etc/netplan/60-fabric.yaml (mode 600)\n"
    return head + yaml.safe_dump(document, sort_keys=False)


def _ethernet(made: Deployment, mac: str | None, addresses: list[str]) -> dict[str, object]:
    # While the other end of a cable restarts, systemd-networkd would take addresses away, and with
    # them routes and neighbours.
    entry: dict[str, object] = {
        "optional": True, "ignore-carrier": True, "dhcp4": False, "dhcp6": False, "link-local": [],
    }  # fmt: skip
    if mac is not None:
        entry["macaddress"] = mac
    entry["mtu"] = made.site.mtu
    if addresses:
        entry["addresses"] = addresses
    return entry


def ports_of(made: Deployment, server: int) -> list[End]:
    """Return the ports of a server that cables are in, ascending."""
    return sorted(end for end in made.port_addresses if end[0] == server)


def routes_script(made: Deployment, server: int) -> str:
    """Return a host's routes to the other hosts' addresses, and what it forwards for them.

    Own packets follow the main table, those of another source a table of that source where the
    plan routes them otherwise. Neighbours are written down, because a fibre that carries one
    direction cannot ask for them.

    Parameters
    ----------
    made : Deployment
    server : int
    """
    commands = []
    for end in ports_of(made, server):
        if (other := made.cabling.leads_to.get(end)) is None:
            continue
        neighbour = f"{made.port_address(other)} lladdr {made.mac(other)}"
        commands.append(
            f"neigh replace {neighbour} dev {quote(made.port(end).interface)} nud permanent "
            f"protocol {PROTOCOL}"
        )
    own = made.host_address(server)
    for (node, target), hops in sorted(made.forwarding.local.items()):
        if node == server:
            ahead = _next_hops(made, server, hops)
            commands.append(
                f"route replace {made.host_address(target)}/32 src {own} proto {PROTOCOL} {ahead}"
            )
    sources = set()
    for (node, source, target), hops in sorted(made.forwarding.transit.items()):
        if node != server:
            continue
        sources.add(source)
        ahead = _next_hops(made, server, hops)
        commands.append(
            f"route replace {made.host_address(target)}/32 table {TABLES + source} "
            f"proto {PROTOCOL} {ahead}"
        )
    for source in sorted(sources):
        commands.append(
            f"rule add pref {TABLES + source} from {made.host_address(source)} "
            f"lookup {TABLES + source} protocol {PROTOCOL}"
        )
    settings = []
    for end in ports_of(made, server):
        conf = f"net/ipv4/conf/{made.port(end).interface}"
        # Packets leave and arrive by different ports, or come back out of the one they came by.
        settings += [
            f"{conf}/forwarding 1", f"{conf}/rp_filter 2", f"{conf}/send_redirects 0",
            f"{conf}/accept_redirects 0",
        ]  # fmt: skip
    # Either the port's setting or that of all sends redirects, so both must be off. Connections
    # are told apart by their ports where a route has several next hops.
    settings += ["net/ipv4/conf/all/send_redirects 0", "net/ipv4/fib_multipath_hash_policy 1"]
    # Hosts of one seed would divide alike, so that a second division sees only one half's packets.
    # Linux knows the setting since 6.11; before, every host draws a seed when it starts.
    settings.append(f"net/ipv4/fib_multipath_hash_seed {server + 1}")
    head = _HEAD.format(
        purpose="Routes to all hosts over the plan's paths, and forwarding for other hosts.",
        name=made.name(server), file="routes.sh", saved=quote(f"{made.name(server)}.settings"),
    )  # fmt: skip
    ours = [*_ours(PROTOCOL), f"rule flush protocol {PROTOCOL}"]
    body = _ROUTES % {
        "ours": ended(ours), "settings": ended(settings), "commands": ended(commands)
    }  # fmt: skip
    return head + body + _MAIN


def _next_hops(made: Deployment, server: int, hops: Hops) -> str:
    several = len(hops) > 1
    words = []
    for port, weight in hops:
        other = made.cabling.leads_to[server, port]
        device = quote(made.port((server, port)).interface)
        words.append(
            f"nexthop via {made.port_address(other)} dev {device} weight {weight} onlink"
            if several
            else f"via {made.port_address(other)} dev {device} onlink"
        )
    return " ".join(words)


def rdma_script(made: Deployment, server: int) -> str:
    """Return how a host reaches other hosts' RDMA ports, and forwards RDMA packets for others.

    As on TopoOpt's testbed (hipersys-team/TopoOpt, testbed/SETUP.md): at the source a route and
    a neighbour entry of the destination itself with the next hop's MAC address; in between a
    flower filter by addresses that rewrites the MAC address and redirects to the next cable.
    Packets for other hosts go to the MAC address of the port's function without RDMA, if the
    site names one, since an RDMA function takes all RoCE packets for its own.

    Parameters
    ----------
    made : Deployment
    server : int
    """
    ways: dict[End, list[int]] = defaultdict(list)
    neighbours, filters, devices = [], [], set()
    for channel, at in made.channels.leaving.get(server, ()):
        target = made.port_address(channel.target)
        end, other = channel.hops[at]
        last = at == len(channel.hops) - 1
        mac = made.mac(other, forward=not last and made.port(other).forward is not None)
        out = quote(made.port(end).interface)
        if at == 0:
            # The neighbour at a cable's end is in routes.sh, its subnet in netplan's file.
            if not last:
                neighbours.append(f"{target} lladdr {mac} dev {out}")
            if not last or made.cabling.leads_to.get(other) != end:
                ways[channel.target].append(end[1])
            continue
        arrived = made.port(channel.hops[at - 1][1])
        device = arrived.forward.interface if arrived.forward else arrived.interface
        devices.add(device)
        match = (
            f"src_ip {made.port_address(channel.source)} dst_ip {target} "
            f"ip_proto udp dst_port {ROCE_PORT} action pedit ex munge eth dst set {mac} "
            f"pipe action mirred egress redirect dev {out}"
        )
        begin = f"filter add dev {quote(device)} ingress protocol"
        filters += [
            f"{begin} ip pref {FILTERS[0]} flower {match}",
            f"{begin} 802.1Q pref {FILTERS[1]} flower vlan_ethtype ip {match}",
        ]
    commands = [
        f"neigh replace {entry} nud permanent protocol {RDMA_PROTOCOL}" for entry in neighbours
    ]
    for end, ports in sorted(ways.items()):
        out = " ".join(
            f"nexthop dev {quote(made.port((server, port)).interface)} weight 1" for port in ports
        )
        commands.append(f"route replace {made.port_address(end)}/32 proto {RDMA_PROTOCOL} {out}")
    head = _HEAD.format(
        purpose="RDMA between ports that no cable joins: ways out, and forwarding for others.",
        name=made.name(server), file="rdma.sh", saved=quote(f"{made.name(server)}.devices"),
    )  # fmt: skip
    old = [
        f"filter del dev {quote(device)} ingress pref {preference}"
        for device in sorted(devices)
        for preference in FILTERS
    ]
    body = _RDMA % {
        "ours": ended(_ours(RDMA_PROTOCOL)), "devices": ended(sorted(devices)),
        "old": ended(old), "commands": ended(commands), "filters": ended(filters),
    }  # fmt: skip
    return head + body + _MAIN


def _ours(protocol: int) -> list[str]:
    # By their mark: "ip neigh del" ends a whole batch where one is gone, as with a dead cable.
    return [f"route flush table all proto {protocol}",
            f"neigh flush nud permanent protocol {protocol}"]  # fmt: skip
