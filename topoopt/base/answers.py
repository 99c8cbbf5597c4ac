"""Answers of one question in a JSON file, so that a run that was stopped goes on from them."""

import json
from pathlib import Path
from typing import Any

from codesign_base import InputError
from codesign_base.paths import exists
from parallelism.reading import parse_json, read_text
from topoopt.base.atomic import write_text_atomically


def read_answers(path: Path, what: str, schema: str, question: Any) -> dict[str, Any]:
    """Return the answers in a file.

    Parameters
    ----------
    path : Path
    what : str
        What messages call the file.
    schema : str
        What the file says it is.
    question : JSON data
        All that the answers depend on.

    Returns
    -------
    dict
        Answers by name; empty without the file.

    Raises
    ------
    InputError
        If the file cannot be read, is something else, or is of another question.
    """
    if not exists(path):
        return {}
    content = parse_json(read_text(path, what), f"{what} {path}")
    answers = content.get("answers") if isinstance(content, dict) else None
    if not isinstance(answers, dict) or content.get("schema") != schema:
        raise InputError(
            f"{what} {path}: not a {what} of this program; name another file, or remove it"
        )
    # As text: JSON has lists for tuples.
    if content.get("question") != json.loads(json.dumps(question)):
        raise InputError(
            f"{what} {path}: of another question (job, cluster, seed, settings, prices or the "
            "program's source code differ); name another file, or remove it"
        )
    return answers


def write_answers(path: Path, schema: str, question: Any, answers: dict[str, Any]) -> None:
    """Write the file of `read_answers` anew."""
    content = {"schema": schema, "question": question, "answers": answers}
    write_text_atomically(path, json.dumps(content, allow_nan=False) + "\n")
