"""What one port of a server connects."""

from enum import StrEnum

from codesign_base.arguments import member


class PortModel(StrEnum):
    """What one port of a server connects.

    ``directed``: its transmit and its receive fibre may go to different servers, so d ports
    carry d different rings. ``bidirectional``: both fibres go to the same server, so a ring
    +p takes two ports of each member and also gives the ring -p (TopoOpt's artifact).
    """

    DIRECTED = "directed"
    BIDIRECTIONAL = "bidirectional"


def port_model(value: str) -> PortModel:
    """Return the port model of a name.

    Raises
    ------
    InputError
        If there is none.
    """
    return member("ports", value, PortModel)
