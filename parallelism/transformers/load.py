"""A transformer by what a user typed: a name, or a path to a configuration."""

from pathlib import Path
from typing import Any

from codesign_base import InputError
from codesign_base.arguments import check_kind
from codesign_base.paths import is_directory, is_file, names_model_file
from parallelism.reading import parse_json, read_text
from parallelism.suggestions import suggestion
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.huggingface import is_config, read_config
from parallelism.transformers.overrides import override
from parallelism.transformers.presets import TRANSFORMERS, get_transformer


def is_transformer(name_or_path: str) -> bool:
    """Whether `load_transformer` would take this, rather than it being another kind of model.

    A path that does not exist or cannot be read is no transformer.
    """
    if not names_model_file(name_or_path):
        return name_or_path in TRANSFORMERS
    path = Path(name_or_path)
    if is_directory(path):
        return is_file(path / "config.json")
    if path.suffix.lower() != ".json":
        return False
    try:
        return is_config(parse_json(read_text(path, "model file"), "model file"))
    except InputError:
        return False


def load_transformer(name_or_path: str | Path, **overrides: Any) -> Transformer:
    """Return a transformer by name, or from a Hugging Face configuration.

    Parameters
    ----------
    name_or_path : str or Path
        A key of `TRANSFORMERS`, a ``config.json``, or the directory that holds one.
    **overrides
        Fields of `Transformer`; ``sequence`` is checked against a configuration's learned
        positions. Where ``layers`` is given, fewer layers are of the kinds that the first ones had,
        and more of them repeat the pattern.

    Raises
    ------
    InputError
        If there is no such name or file, or it describes no transformer that is known.

    Examples
    --------
    >>> load_transformer("gpt2", sequence=512).sequence
    512
    """
    check_kind(
        "name_or_path", name_or_path, str | Path,
        "the name of a transformer, such as 'llama3-8b', or the path of a config.json",
    )  # fmt: skip
    name_or_path = str(name_or_path)
    folder = name_or_path not in ("", *TRANSFORMERS) and is_directory(Path(name_or_path))
    if folder or names_model_file(name_or_path):
        known = {key: overrides.pop(key) for key in ("sequence",) if key in overrides}
        return override(read_config(name_or_path, **known), **overrides)
    if name_or_path not in TRANSFORMERS:
        raise InputError(
            f"unknown transformer {name_or_path!r}; "
            f"{suggestion(name_or_path, list(TRANSFORMERS)).rstrip('?')}, or give a config.json"
        )
    return get_transformer(name_or_path, **overrides)
