"""A user's own model: an operator graph in a YAML or JSON file.

The file lists model inputs with the shape of one sample, then operators in an order in which
each reads model inputs or operators before it. Shapes, FLOPs, parameters, memory traffic and
legal splits follow from the kinds; a ``custom`` operator states them itself::

    name: two-towers
    batch_per_gpu: 128
    element_bytes: 4            # optional: 4 = fp32 (default), 2 = bf16
    inputs:                     # shape of one sample: [features], [positions, features]
      profile: [512]            # or [channels, height, width]
      photo: [3, 64, 64]
    operators:
      - {name: history, kind: embedding, rows: 1_000_000, dim: 64, bag: 20}
      - {name: user, kind: dense, inputs: [profile], out_features: 64}
      - {name: conv, kind: conv2d, inputs: [photo], out_channels: 32, kernel: 3, padding: 1}
      - {name: pool, kind: pool, inputs: [conv], kernel: 8, stride: 8}
      - {name: flat, kind: flatten, inputs: [pool]}
      - {name: item, kind: dense, inputs: [flat], out_features: 64}
      - {name: all, kind: concat, inputs: [history, user, item]}
      - name: cross
        kind: custom
        inputs: [all]
        output_shape: [192]
        forward_flops: 73_728   # of one sample, as are all counts but parameters
        backward_flops: 147_456
        forward_bytes: 1536     # accelerator memory traffic without dense weights
        backward_bytes: 3072
        parameters: 37_056
        splits: [{mode: output, extent: 192}]
      - {name: score, kind: dense, inputs: [cross], out_features: 1}

See ``docs/model-file.md`` for every kind and field.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codesign_base import InputError
from codesign_base.arguments import check_path
from codesign_base.paths import is_directory
from parallelism.graph import ModelGraph
from parallelism.operators.builder import GraphBuilder
from parallelism.operators.shapes import Tensor
from parallelism.reading import parse_json, parse_yaml, read_text, wrong_value
from parallelism.suggestions import suggestion
from parallelism.transformers.huggingface import is_config, read_config
from parallelism.transformers.operators import model_graph

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError


def load_model(path: str | Path) -> ModelGraph:
    """Read a model from a YAML or JSON file, or a transformer from a ``config.json``.

    Parameters
    ----------
    path : str or Path
        JSON if it ends in ``.json``, else YAML. JSON with ``model_type`` or ``architectures``
        is a Hugging Face configuration (`parallelism.transformers.huggingface.read_config`), and
        so is what a directory holds.

    Returns
    -------
    ModelGraph

    Raises
    ------
    InputError
        If the file is missing, unreadable, not valid YAML or JSON, has an unknown or missing
        field, repeats a name, reads an unknown operator, or describes impossible shapes.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from parallelism.model_file import load_model
    >>> path = Path(tempfile.mkdtemp()) / "small.yaml"
    >>> _ = path.write_text(
    ...     "{name: small, batch_per_gpu: 8, inputs: {x: [64]},"
    ...     " operators: [{name: out, kind: dense, inputs: [x], out_features: 10}]}"
    ... )
    >>> load_model(path).parameters
    650
    """
    check_path("model file", path)
    where = f"model file {str(path)!r}"
    if is_directory(path):
        return _transformer_graph(path)
    text = read_text(path, "model file")
    data = parse_json(text, where) if Path(path).suffix == ".json" else parse_yaml(text, where)
    if is_config(data):
        return _transformer_graph(path)
    if not isinstance(data, dict):
        raise InputError(
            f"{where}: expected fields name, batch_per_gpu, inputs and operators at the top"
        )
    if not {"name", "batch_per_gpu", "inputs", "operators"} & set(data):
        raise InputError(
            f"{where} is neither a Hugging Face config.json, which has a model_type, nor a file of "
            "operators, which has name, batch_per_gpu, inputs and operators; give one of these"
        )
    return model_from_data(data, where)


def _transformer_graph(path: str | Path) -> ModelGraph:
    return model_graph(read_config(path))


def model_from_data(data: dict[str, Any], where: str) -> ModelGraph:
    """Build a model from the content of a model file.

    Parameters
    ----------
    data : dict
        As parsed from YAML or JSON.
    where : str
        The origin, for messages.

    Returns
    -------
    ModelGraph

    Raises
    ------
    InputError
        As `load_model`.
    """
    from pydantic import ValidationError

    from parallelism.models.schema import ModelSpec, append_operator

    try:
        spec = ModelSpec.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{where}: {_sentence(error, data)}") from None
    try:
        build = GraphBuilder(spec.name, spec.batch_per_gpu, spec.element_bytes)
        known: dict[str, Tensor] = {
            name: build.input(*shape) for name, shape in spec.inputs.items()
        }
        for operator in spec.operators:
            if operator.name in known:
                raise InputError(
                    f"the name {operator.name!r} occurs twice; give every input and operator "
                    "its own"
                )
            for source in operator.inputs:
                if source not in known:
                    raise InputError(
                        f"operator {operator.name!r} reads {source!r}, which is no model input "
                        f"or operator before it; {suggestion(source, list(known))}"
                    )
            inputs = [known[source] for source in operator.inputs]
            known[operator.name] = append_operator(build, operator, inputs)
        graph = build.build()
        for operator, op in zip(spec.operators, graph.operators, strict=True):
            stated = {split.mode for split in getattr(operator, "splits", ())}
            for mode in sorted(stated - {split.mode.name.lower() for split in op.splits}):
                if mode in ("reduction", "heads"):
                    raise InputError(
                        f"operator {op.name!r}: split {mode!r} makes partial sums, which no "
                        "operator reads; leave it out, or add the operator that reads their sum"
                    )
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    operators = tuple(
        op if given.profile_key is None else replace(op, profile_key=given.profile_key)
        for op, given in zip(graph.operators, spec.operators, strict=True)
    )
    return replace(graph, operators=operators)


def _sentence(error: "ValidationError", data: dict[str, Any]) -> str:
    """Turn the first finding of pydantic into one sentence in the file's own words."""
    first = error.errors(include_url=False)[0]
    steps = list(first["loc"])
    kind = ""
    at = ""
    if steps[:1] == ["operators"] and len(steps) > 1:
        number = int(steps[1])
        entry = data["operators"][number]
        name = entry.get("name") if isinstance(entry, dict) else None
        at = f"operator {number + 1}" + (f" ({name!r})" if isinstance(name, str) else "") + ": "
        steps = steps[2:]
        if steps and isinstance(entry, dict) and steps[0] == entry.get("kind"):
            kind = str(steps.pop(0))
    field = ".".join(str(step) for step in steps)
    if first["type"] == "extra_forbidden":
        known = _fields(kind) if len(steps) == 1 else []
        hint = suggestion(str(steps[-1]), known) if known else "remove it"
        return f"{at}unknown field {field!r}; {hint}"
    if first["type"] == "missing":
        return f"{at}field {field!r} is missing; add it"
    if first["type"] == "union_tag_not_found":
        return f"{at}field 'kind' is missing; choose one of {_kinds()}"
    if first["type"] == "union_tag_invalid":
        return f"{at}unknown kind {entry.get('kind')!r}; choose one of {_kinds()}"
    subject = f"field {field!r}" if field else "the entry"
    return f"{at}{subject} {wrong_value(first)}"


def _specs() -> "dict[str, type[BaseModel]]":
    from typing import get_args

    from parallelism.models.schema import AnySpec

    return {
        kind: spec
        for spec in get_args(get_args(AnySpec)[0])
        for kind in get_args(spec.model_fields["kind"].annotation)
    }


def _kinds() -> str:
    return ", ".join(_specs())


def _fields(kind: str) -> list[str]:
    from parallelism.models.schema import ModelSpec

    spec = _specs()[kind] if kind else ModelSpec
    return list(spec.model_fields)
