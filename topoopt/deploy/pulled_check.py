"""Whether the files of a repair carry it out, and leave alone what must stay."""

from dataclasses import replace

from topoopt.deploy.check import Checked, check_files
from topoopt.deploy.deployment import Deployment
from topoopt.deploy.files import deploy_files
from topoopt.deploy.pulled import busiest_cable, without_cable
from topoopt.deploy.technician import label


def check_repair(made: Deployment) -> tuple[str, Checked] | None:
    """Pull the busiest cable that can be spared, and follow all pairs through the new files.

    Parameters
    ----------
    made : Deployment

    Returns
    -------
    (str, Checked) or None
        Label of the cable, and what was found: besides the faults of `check_files`, addresses
        that change. None if no cable can be spared.
    """
    cable = busiest_cable(made)
    if cable is None:
        return None
    repair = without_cable(made, cable)
    files = deploy_files(repair)
    checked = check_files(repair, files)
    old = deploy_files(made)
    moved = [
        f"{path} is not as before"
        for path, text in old.items()
        if path.endswith("netplan.yaml") and files.get(path) != text
    ]
    return label(made, cable), replace(checked, faults=(*checked.faults, *moved))
