"""What one port of a server connects."""

from enum import StrEnum

from codesign_base import InputError


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
    try:
        return PortModel(value)
    except ValueError:
        raise InputError(f"ports is {value!r}; choose {' or '.join(PortModel)}") from None
