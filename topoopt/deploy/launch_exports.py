"""Single outputs of a deployment, for whoever wants no others."""

from codesign_base import InputError
from topoopt.deploy.deployment import Deployment
from topoopt.deploy.job_files import OUTPUTS
from topoopt.deploy.notes import deploy_notes
from topoopt.deploy.technician import netbox_csv
from topoopt.plan.ranks import ranks_of

TITLES = {
    "msccl": "MSCCL",
    "nccl": "NCCL",
    "megatron": "Megatron-LM",
    "torchtitan": "torchtitan",
    "pipeline": "a pipeline",
    "netbox": "NetBox",
}
"""What errors call the program of each format."""


def exported(made: Deployment, kind: str) -> tuple[dict[str, str], list[str]]:
    """Return some of the files of a deployment, and what is noted on them.

    Parameters
    ----------
    made : Deployment
    kind : str
        One of `TITLES`.

    Returns
    -------
    files : dict of str to str
        Names within the directory of the format, or one file.
    notes : list of str

    Raises
    ------
    InputError
        If the plan has none.
    """
    if kind == "netbox":
        notes = [note for note in deploy_notes(made) if note.startswith(TITLES[kind])]
        return {"netbox-cables.csv": netbox_csv(made)}, notes
    files, notes = OUTPUTS[kind](made, ranks_of(made.plan))
    if not files:
        why = {
            "megatron": "these are made for plans by layouts",
            "torchtitan": "these are made for plans by layouts",
            "pipeline": "these are made for layouts of several stages",
        }.get(kind, "nothing in it reduces or exchanges over several servers")
        raise InputError(
            f"the plan has no files for {TITLES[kind]} ({'; '.join(notes) or why}); export "
            "another format"
        )
    return {name.removeprefix(f"{kind}/"): text for name, text in files.items()}, notes
