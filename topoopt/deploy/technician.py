"""What whoever pulls cables needs: the list to walk along, labels, imports and cross-connects."""

from collections.abc import Sequence

from topoopt.deploy.cabling import Cable, End
from topoopt.deploy.deployment import Deployment
from topoopt.deploy.tables import write_table

CABLE_COLUMNS = (
    "cable", "from_host", "from_port", "from_panel", "from_position", "to_host", "to_port",
    "to_panel", "to_position", "direction", "length_m",
)  # fmt: skip

# CableImportForm of netbox-community/netbox, dcim/forms/bulk_import.py.
NETBOX_COLUMNS = (
    "side_a_device", "side_a_type", "side_a_name", "side_b_device", "side_b_type", "side_b_name",
    "status", "label", "length", "length_unit", "description",
)  # fmt: skip

CROSS_COLUMNS = ("panel", "input", "output", "from_host", "from_port", "to_host", "to_port")

BOTH_WAYS, ONE_WAY = "both", "one-way"


def label(made: Deployment, cable: Cable) -> str:
    """Return what a cable is called: its number in the order of walking."""
    place = made.laid.place
    return f"C{place[cable] + 1:0{len(str(len(place)))}d}"


def length_m(made: Deployment, cable: Cable) -> float | None:
    """Return the metres of a cable, if both hosts have a place: the way along axes, and slack."""
    one, other = (made.site.hosts[end[0]].place_m for end in (cable.source, cable.target))
    if one is None or other is None:
        return None
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) + made.site.slack_m


def cables_csv(made: Deployment) -> str:
    """Return all cables, sorted by host and port of the first end.

    Parameters
    ----------
    made : Deployment
    """
    return write_table(CABLE_COLUMNS, (_row(made, cable) for cable in made.cabling.cables))


def _row(made: Deployment, cable: Cable) -> Sequence[object]:
    length = length_m(made, cable)
    return (
        label(made, cable), *_end(made, cable.source), *_end(made, cable.target),
        BOTH_WAYS if cable.both_ways else ONE_WAY, "" if length is None else f"{length:.1f}",
    )  # fmt: skip


def _end(made: Deployment, end: End) -> Sequence[object]:
    port = made.port(end)
    return made.name(end[0]), port.interface, port.panel or "", port.position or ""


def netbox_csv(made: Deployment) -> str:
    """Return the cables as NetBox imports them in bulk; devices and interfaces must exist there.

    NetBox lets one cable into an interface. Ports whose two fibres go to different hosts are
    therefore two interfaces there, named with ``-tx`` and ``-rx``.

    Parameters
    ----------
    made : Deployment
    """
    rows = []
    for cable in made.cabling.cables:
        length = length_m(made, cable)
        sides: list[object] = []
        for end, fibre in ((cable.source, "-tx"), (cable.target, "-rx")):
            name = made.port(end).interface + ("" if cable.both_ways else fibre)
            sides += [made.name(end[0]), "dcim.interface", name]
        rows.append((
            *sides, "planned", label(made, cable), "" if length is None else f"{length:.2f}",
            "" if length is None else "m", "" if cable.both_ways else "one-way: A transmits",
        ))  # fmt: skip
    return write_table(NETBOX_COLUMNS, rows)


def cross_connects_csv(made: Deployment) -> str | None:
    """Return what panels join: light that enters at one position leaves at the other.

    Parameters
    ----------
    made : Deployment

    Returns
    -------
    str or None
        None if no port is on a panel.
    """
    rows = []
    for end, other in made.cabling.leads_to.items():
        port, heard = made.port(end), made.port(other)
        if port.panel is not None:
            rows.append((
                port.panel, port.position, heard.position, made.name(end[0]), port.interface,
                made.name(other[0]), heard.interface,
            ))  # fmt: skip
    if not rows:
        return None
    return write_table(CROSS_COLUMNS, sorted(rows, key=lambda row: (row[0], row[1] or 0)))


def labels_csv(made: Deployment) -> str:
    """Return the two labels of each cable: this end first, then where the other end goes.

    Parameters
    ----------
    made : Deployment
    """
    rows = []
    for cable in made.cabling.cables:
        here = f"{made.name(cable.source[0])}:{made.port(cable.source).interface}"
        there = f"{made.name(cable.target[0])}:{made.port(cable.target).interface}"
        arrow = "<->" if cable.both_ways else "->"
        rows.append((label(made, cable), "A", f"{label(made, cable)} {here} {arrow} {there}"))
        back = "<->" if cable.both_ways else "<-"
        rows.append((label(made, cable), "B", f"{label(made, cable)} {there} {back} {here}"))
    return write_table(("cable", "end", "text"), rows)
