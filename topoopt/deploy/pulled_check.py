"""Whether the files of a repair carry it out, and leave alone what must stay."""

from dataclasses import dataclass, replace

from topoopt.deploy.cabling import Cable
from topoopt.deploy.check import Checked, check_files
from topoopt.deploy.deployment import Deployment
from topoopt.deploy.files import building_files
from topoopt.deploy.host_files import netplan
from topoopt.deploy.pulled import busiest_cable, without_cables
from topoopt.deploy.read_back import Files
from topoopt.deploy.technician import label


@dataclass(frozen=True)
class Repair:
    """What is done after a cable was pulled.

    Parameters
    ----------
    label : str
    cable : Cable
    made : Deployment
        Without it.
    files : mapping of str to str
        For its cables and hosts.
    """

    label: str
    cable: Cable
    made: Deployment
    files: Files


def repair_of(made: Deployment) -> Repair | None:
    """Return the repair after the busiest cable that can be spared is pulled.

    None if no cable can be spared.

    Parameters
    ----------
    made : Deployment
    """
    cable = busiest_cable(made)
    if cable is None:
        return None
    without = without_cables(made, [cable])
    return Repair(label(made, cable), cable, without, building_files(without))


def check_repair(made: Deployment, repair: Repair) -> Checked:
    """Follow all pairs through the files of a repair.

    Parameters
    ----------
    made : Deployment
        Before the cable was pulled.
    repair : Repair

    Returns
    -------
    Checked
        Besides the faults of `check_files`, addresses that change.
    """
    checked = check_files(repair.made, repair.files)
    moved = []
    for server in made.servers:
        path = f"hosts/{made.name(server)}/netplan.yaml"
        if repair.files[path] != netplan(made, server):
            moved.append(f"{path} is not as before")
    return replace(checked, faults=(*checked.faults, *moved))
