"""The site file: which hosts, ports, panels and address ranges a plan is built with.

docs/deploy.md describes the file. Without one, defaults are made that any lab can follow.
"""

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from codesign_base import InfeasibleError, InputError
from codesign_base.counted import counted
from parallelism.reading import parse_yaml, read_text, schema_fault
from topoopt.plan.plan import Plan

_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)
# Names go into file names, shell scripts and tables of other programs.
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_INTERFACE = re.compile(r"[A-Za-z0-9_.-]{1,15}")
_MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(
            f"the name {text!r} is not one of letters, digits, dots and hyphens, at most 63"
        )
    return text


def _interface(text: str) -> str:
    if not _INTERFACE.fullmatch(text) or text in (".", "..", "lo", "all", "default"):
        raise ValueError(
            f"the interface {text!r} is not one of 1 to 15 letters, digits, dots and hyphens, and "
            "other than lo, all and default"
        )
    return text


def _mac(text: str) -> str:
    low = text.lower()
    if not _MAC.fullmatch(low) or int(low[:2], 16) & 1 or low == "00:00:00:00:00:00":
        raise ValueError(f"the MAC address {text!r} is not a unicast one like 02:54:00:00:00:01")
    return low


def _address(text: str) -> str:
    try:
        return str(IPv4Address(text))
    except ValueError:
        raise ValueError(f"{text!r} is not an IPv4 address") from None


def _range(text: str) -> str:
    try:
        return str(IPv4Network(text))
    except ValueError:
        raise ValueError(f"{text!r} is not an IPv4 range such as 10.100.0.0/16") from None


_Name = Annotated[str, AfterValidator(_name)]
Interface = Annotated[str, AfterValidator(_interface)]
Mac = Annotated[str, AfterValidator(_mac)]
Address = Annotated[str, AfterValidator(_address)]
Range = Annotated[str, AfterValidator(_range)]
_Metres = Annotated[float, Field(ge=-1e5, le=1e5)]


class PanelSpec(BaseModel):
    """A patch panel or circuit switch that ports are cabled to.

    Attributes
    ----------
    name : str
    positions : int
        Numbered from 1.
    """

    model_config = _STRICT
    name: _Name
    positions: Annotated[int, Field(ge=2, le=100_000)]


class ForwardSpec(BaseModel):
    """The second function of a port, without RDMA, that takes packets meant for other hosts."""

    model_config = _STRICT
    interface: Interface
    mac: Mac | None = None


class PortSpec(BaseModel):
    """A network port of a host.

    Attributes
    ----------
    interface : str
        Its Linux interface.
    rdma : str, optional
        Its RDMA device, such as ``mlx5_0``.
    mac : str, optional
        Left out, the host is given one.
    forward : ForwardSpec, optional
    panel, position : str and int, optional
        Where on which panel the port is cabled to.
    """

    model_config = _STRICT
    interface: Interface
    rdma: _Name | None = None
    mac: Mac | None = None
    forward: ForwardSpec | None = None
    panel: _Name | None = None
    position: Annotated[int, Field(ge=1)] | None = None


class HostSpec(BaseModel):
    """A server, in the order of the plan's numbers.

    Attributes
    ----------
    name : str
    management : str, optional
        IPv4 address for logins and for the start of jobs; the name is used without it.
    management_interface : str, optional
    place_m : tuple of float, optional
        Metres along the row, across rows and of height, for the lengths of cables; each at most
        100 km from zero.
    ports : list of PortSpec
    """

    model_config = _STRICT
    name: _Name
    management: Address | None = None
    management_interface: Interface | None = None
    place_m: tuple[_Metres, _Metres, _Metres] | None = Field(default=None, strict=False)
    ports: Annotated[list[PortSpec], Field(min_length=1)]


class AddressSpec(BaseModel):
    """Ranges that addresses are taken from."""

    model_config = _STRICT
    hosts: Range = "10.100.0.0/16"
    cables: Range = "10.101.0.0/16"
    cable_prefix: Annotated[int, Field(ge=16, le=31)] = 31
    """Of each cable's subnet; 31 leaves room for its two ends alone."""


class Site(BaseModel):
    """The whole file."""

    model_config = _STRICT
    hosts: Annotated[list[HostSpec], Field(min_length=1)]
    panels: list[PanelSpec] = []
    addresses: AddressSpec = AddressSpec()
    mtu: Annotated[int, Field(ge=1280, le=65_000)] = 9000
    slack_m: Annotated[float, Field(ge=0.0, le=100.0)] = 1.0
    """Metres of a cable beyond the way between its ends."""


def default_site(servers: int, degree: int) -> Site:
    """Return hosts ``server-0``, ``server-1``, ... with ports ``fab0``, ``fab1``, ...

    Parameters
    ----------
    servers, degree : int
    """
    width = len(str(servers - 1))
    return Site(
        hosts=[
            HostSpec(
                name=f"server-{v:0{width}d}",
                ports=[PortSpec(interface=f"fab{p}") for p in range(degree)],
            )
            for v in range(servers)
        ]
    )


def site_yaml(site: Site) -> str:
    """Return a site file, to be changed and given back by ``--hosts``.

    Parameters
    ----------
    site : Site
    """
    head = "# The site that this deployment was made for: change it, and give it back by --hosts\n"
    return head + yaml.safe_dump(
        site.model_dump(mode="json", exclude_none=True), sort_keys=False, allow_unicode=True
    )


def load_site(path: str | Path) -> Site:
    """Read a site file.

    Parameters
    ----------
    path : str or Path
        YAML.

    Returns
    -------
    Site

    Raises
    ------
    InputError
        If it cannot be read, or names something twice.
    """
    where = f"site file {str(path)!r}"
    document = parse_yaml(read_text(path, "site file"), where)
    if not isinstance(document, dict):
        raise InputError(f"{where} holds no fields; start it with 'hosts:'")
    try:
        site = Site.model_validate(document)
    except ValidationError as error:
        raise InputError(f"{where}: {schema_fault(error, 'see docs/deploy.md')}") from None
    try:
        check_names(site)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return site


def check_names(site: Site) -> None:
    """Refuse a site in which two things are one.

    Raises
    ------
    InputError
        Naming what occurs twice, or a panel that does not exist.
    """
    _once((host.name.lower() for host in site.hosts), "host name")
    _once((host.management for host in site.hosts), "management address")
    _once((panel.name for panel in site.panels), "panel")
    macs, positions = [], []
    panels = {panel.name: panel for panel in site.panels}
    for host in site.hosts:
        names = [port.interface for port in host.ports]
        names += [port.forward.interface for port in host.ports if port.forward]
        _once([*names, host.management_interface], f"host {host.name!r}: interface")
        _once((port.rdma for port in host.ports), f"host {host.name!r}: RDMA device")
        for port in host.ports:
            macs += [port.mac, port.forward.mac if port.forward else None]
            at = f"port {port.interface!r} of host {host.name!r}"
            if (port.panel is None) != (port.position is None):
                raise InputError(f"{at} has a panel or a position alone; give both or neither")
            if port.panel is None or port.position is None:
                continue
            if port.panel not in panels:
                raise InputError(
                    f"{at} is on panel {port.panel!r}, which is not listed; add it to panels"
                )
            if port.position > panels[port.panel].positions:
                raise InputError(
                    f"{at} is on position {port.position} of panel {port.panel!r}, which has "
                    f"{panels[port.panel].positions}; correct one of them"
                )
            positions.append(f"{port.position} of panel {port.panel!r}")
    _once(macs, "MAC address")
    _once(positions, "position")


def check_site(site: Site, plan: Plan) -> None:
    """Refuse a site that cannot carry a plan.

    Parameters
    ----------
    site : Site
    plan : Plan

    Raises
    ------
    InfeasibleError
        If there are too few hosts or ports, or the ranges are too small or overlap.
    """
    servers, degree = plan.cluster.servers, plan.cluster.degree
    if len(site.hosts) != servers:
        raise InfeasibleError(
            f"the site has {counted(len(site.hosts), 'host')}, the plan "
            f"{counted(servers, 'server')}; list as many"
        )
    for host in site.hosts:
        if len(host.ports) < degree:
            raise InfeasibleError(
                f"host {host.name!r} has {counted(len(host.ports), 'port')}, the plan needs "
                f"{degree} of each server; add ports, or plan with --degree {len(host.ports)}"
            )
        placed = [port for port in host.ports[:degree] if port.panel is not None]
        if placed and len(placed) < degree:
            raise InfeasibleError(
                f"host {host.name!r} has {len(placed)} of {degree} ports on panels; cable all of "
                "them to panels, or none"
            )
    on_panels = {host.ports[0].panel is not None for host in site.hosts}
    if len(on_panels) > 1:
        raise InfeasibleError(
            "some hosts are on panels and others are not; cable all of them to panels, or none"
        )
    hosts, cables = IPv4Network(site.addresses.hosts), IPv4Network(site.addresses.cables)
    if hosts.overlaps(cables):
        raise InfeasibleError(
            f"address ranges {hosts} of hosts and {cables} of cables overlap; give separate ones"
        )
    if hosts.num_addresses < servers + 1:
        raise InfeasibleError(
            f"address range {hosts} has {counted(hosts.num_addresses, 'address', 'addresses')}, "
            f"{counted(servers, 'host needs', 'hosts need')} {servers + 1}, as the first is the "
            "network's own; give a larger range"
        )
    # Each port at most begins a subnet.
    needed = servers * degree * 2 ** (32 - site.addresses.cable_prefix)
    if cables.num_addresses < needed:
        raise InfeasibleError(
            f"address range {cables} of cables has "
            f"{counted(cables.num_addresses, 'address', 'addresses')}, "
            f"those of {counted(servers, 'server')} with {counted(degree, 'port')} need {needed}; "
            "give a larger range"
        )
    for host in site.hosts:
        if host.management is not None:
            for name, taken in (("hosts", hosts), ("cables", cables)):
                if IPv4Address(host.management) in taken:
                    raise InfeasibleError(
                        f"management address {host.management} of host {host.name!r} lies in "
                        f"the range {taken} of {name}; give another range"
                    )


def _once(values: Iterable[str | None], what: str) -> None:
    seen: set[str] = set()
    for value in values:
        if value is None:
            continue
        if value in seen:
            raise InputError(f"{what} {value} occurs twice; give each its own")
        seen.add(value)
