"""Single outputs of a deployment, for whoever wants no others."""

from codesign_base import InputError
from topoopt.deploy.deployment import Deployment
from topoopt.deploy.job_files import job_files
from topoopt.deploy.notes import deploy_notes
from topoopt.deploy.technician import netbox_csv

EXPORTS = {
    "msccl": ("msccl/", "MSCCL"),
    "nccl": ("nccl/", "NCCL"),
    "megatron": ("megatron.args", "Megatron-LM"),
    "torchtitan": ("torchtitan.toml", "torchtitan"),
    "pipeline": ("pipeline.csv", "a pipeline"),
    "netbox": ("netbox-cables.csv", "NetBox"),
}
"""Of each name, its file or directory in a deployment, and how notes on it begin."""


def exported(made: Deployment, kind: str) -> tuple[dict[str, str], list[str]]:
    """Return some of the files of a deployment, and what is noted on them.

    Parameters
    ----------
    made : Deployment
    kind : str
        One of `EXPORTS`.

    Returns
    -------
    files : dict of str to str
        Names within the directory, or one file.
    notes : list of str

    Raises
    ------
    InputError
        If the plan has none.
    """
    place, title = EXPORTS[kind]
    if kind == "netbox":
        files, notes = {place: netbox_csv(made)}, deploy_notes(made)
    else:
        files, notes = job_files(made)
    found = {
        name.removeprefix(place) if place.endswith("/") else name: text
        for name, text in files.items()
        if name.startswith(place)
    }
    said = [note for note in notes if note.startswith(title)]
    if not found:
        why = {
            "megatron": "these are made for plans by layouts",
            "torchtitan": "these are made for plans by layouts",
            "pipeline": "these are made for layouts of several stages",
        }.get(kind, "nothing in it reduces or exchanges over several servers")
        raise InputError(f"the plan has no files for {title} ({why}); export another format")
    return found, said
