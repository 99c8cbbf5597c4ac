"""All files of a deployment, in memory and in a directory that appears whole or not at all."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from codesign_base import InputError
from parallelism.reading import parse_json
from topoopt.base.directory import check_replaceable, mark_text, write_directory
from topoopt.base.text import ended
from topoopt.deploy.deployment import Deployment
from topoopt.deploy.host_files import netplan, rdma_script, routes_script
from topoopt.deploy.job_files import job_files
from topoopt.deploy.notes import deploy_notes
from topoopt.deploy.picture import cabling_svg
from topoopt.deploy.site import Site, site_yaml
from topoopt.deploy.technician import cables_csv, cross_connects_csv, labels_csv, netbox_csv

DEPLOYMENT_FILE = "deployment.json"
"""By this file a directory is known for one that may be replaced."""


def deploy_files(made: Deployment) -> dict[str, str]:
    """Return all files.

    Parameters
    ----------
    made : Deployment

    Returns
    -------
    dict of str to str
        Path within the directory, with forward slashes, to text.
    """
    files = building_files(made)
    files["hosts.yaml"] = site_yaml(made.site)
    job, notes = job_files(made)
    files |= {f"job/{name}": text for name, text in job.items()}
    said = [*deploy_notes(made), *notes]
    files["NOTES.txt"] = ended(said)
    about = {
        "hosts": [made.name(server) for server in made.servers],
        "site": made.site.model_dump(mode="json"),
        "notes": said,
    }
    return files | {DEPLOYMENT_FILE: mark_text(about, files, DEPLOYMENT_FILE)}


def building_files(made: Deployment) -> dict[str, str]:
    """Return the files for cables and hosts alone, which are all that a check follows.

    Parameters
    ----------
    made : Deployment
    """
    files = {
        "cables.csv": cables_csv(made),
        "labels.csv": labels_csv(made),
        "netbox-cables.csv": netbox_csv(made),
        "wiring.svg": cabling_svg(made),
    }
    if (crossed := cross_connects_csv(made)) is not None:
        files["cross-connects.csv"] = crossed
    for server in made.servers:
        folder = f"hosts/{made.name(server)}"
        files[f"{folder}/netplan.yaml"] = netplan(made, server)
        files[f"{folder}/routes.sh"] = routes_script(made, server)
        files[f"{folder}/rdma.sh"] = rdma_script(made, server)
    return files


def changed_job_files(made: Deployment, files: Mapping[str, str]) -> list[str]:
    """Return the files of the job that are missing, or not what the plan gives.

    Parameters
    ----------
    made : Deployment
    files : mapping of str to str
        A deployment as it was read.
    """
    job, _ = job_files(made)
    return sorted(name for name, text in job.items() if files.get(f"job/{name}") != text)


def site_of(files: Mapping[str, str]) -> Site:
    """Return the site that a deployment was made for.

    Parameters
    ----------
    files : mapping of str to str

    Raises
    ------
    InputError
        If its record was changed.
    """
    document = parse_json(files[DEPLOYMENT_FILE], DEPLOYMENT_FILE)
    try:
        return Site.model_validate(document["site"], strict=False)
    except (ValidationError, KeyError, TypeError):
        raise InputError(
            f"{DEPLOYMENT_FILE} holds no site; deploy again, or give --hosts"
        ) from None


def read_files(directory: str | Path) -> dict[str, str]:
    """Read a deploy directory.

    Parameters
    ----------
    directory : str or Path

    Raises
    ------
    InputError
        If it is not one, or a file cannot be read.
    """
    top = Path(directory)
    if not (top / DEPLOYMENT_FILE).is_file():
        raise InputError(f"{directory} is not a deploy directory; give one that topoopt wrote")
    try:
        return {
            path.relative_to(top).as_posix(): path.read_text(encoding="utf-8")
            for path in sorted(top.rglob("*"))
            if path.is_file()
        }
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{directory} cannot be read ({error}); deploy again") from None


def write_files(files: dict[str, str], directory: str | Path) -> None:
    """Write all files under a temporary name, and put them in place at once.

    Parameters
    ----------
    files : dict of str to str
        As in `deploy_files`.
    directory : str or Path
        Created, or replaced if a deployment is in it.

    Raises
    ------
    InputError
        If something else is there, or it cannot be written.
    """
    write_directory(
        {name: text.encode() for name, text in files.items()}, directory, DEPLOYMENT_FILE
    )


def check_target(target: Path) -> None:
    """Refuse a directory that must not be replaced.

    Raises
    ------
    InputError
        If it is a file, or holds anything else than a deployment.
    """
    check_replaceable(target, DEPLOYMENT_FILE)
