"""Named settings of the model families, and their summary."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from codesign_base import InputError
from codesign_base.arguments import check_kind, told
from parallelism.graph import ModelGraph
from parallelism.models.bert import bert, bert_encoder
from parallelism.models.candle import candle
from parallelism.models.dlrm import dlrm
from parallelism.models.ncf import ncf
from parallelism.models.resnet import resnet50
from parallelism.models.vgg import vgg16
from parallelism.suggestions import suggestion
from parallelism.transformers.operators import model_graph
from parallelism.transformers.presets import TRANSFORMERS, describe, get_transformer

_DEDICATED = "TopoOpt, NSDI 2023: dedicated cluster of 128 servers (published simulator settings)"
_SHARED = "TopoOpt, NSDI 2023: shared cluster, jobs of 16 servers (published simulator settings)"
_PROFILED = "settings that the published 32-server profiles and task graphs were made with"


@dataclass(frozen=True)
class Preset:
    """A family with some of its numbers fixed.

    Parameters
    ----------
    name, description : str
    source : str
        Where the numbers are from.
    family : callable
        Model family; its keyword arguments are what a user may override.
    settings : mapping
        Arguments that differ from the family's defaults.
    """

    name: str
    description: str
    source: str
    family: Callable[..., ModelGraph]
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class ModelSummary:
    """One line of the model list; counts are of one sample unless they are parameters.

    Parameters
    ----------
    name, description, source : str
    operators, parameters : int
    forward_flops_per_sample : float
    activation_bytes_per_sample : float
        Outputs of all operators.
    batch_per_gpu : int
    """

    name: str
    description: str
    source: str
    operators: int
    parameters: int
    forward_flops_per_sample: float
    activation_bytes_per_sample: float
    batch_per_gpu: int


def _preset(
    name: str,
    description: str,
    source: str,
    family: Callable[..., ModelGraph],
    **settings: Any,
) -> Preset:
    return Preset(name, description, source, family, MappingProxyType(settings))


_ALL = (
    _preset("dlrm", "DLRM, 64 tables of 10 M x 128, top MLP 4096", _DEDICATED, dlrm),
    _preset("candle", "CANDLE Uno, 5 towers of 16 x 16384", _DEDICATED, candle),
    _preset("bert", "two-stream transformer, 12 blocks of 1024", _DEDICATED, bert),
    _preset("ncf", "NCF, 2 x 64 tables of 1 M rows, MLP 4096", _DEDICATED, ncf),
    _preset("resnet50", "ResNet50 at 229x229, 10 classes, no batch norm", _DEDICATED, resnet50),
    _preset("vgg16", "VGG16 at 229x229, convolutions padded by 2", _DEDICATED, vgg16),
    _preset(
        "dlrm-16", "DLRM, 16 tables of 10 M x 256, top MLP 2048", _SHARED, dlrm,
        tables=16, dim=256, bottom_width=1024, top_width=2048, batch_per_gpu=256,
    ),
    _preset(
        "candle-16", "CANDLE Uno, 5 towers of 12 x 4096", _SHARED, candle,
        tower_layers=12, width=4096,
    ),
    _preset(
        "bert-16", "two-stream transformer, 6 blocks of 768, sequence 256", _SHARED, bert,
        blocks=6, sequence=256, hidden=768, heads=12,
    ),
    _preset("vgg16-16", "VGG16 at 229x229, convolutions padded by 2", _SHARED, vgg16),
    _preset(
        "dlrm-32", "DLRM, 32 tables of 10 M x 256, top MLP 2048", _PROFILED, dlrm,
        tables=32, dim=256, bottom_width=1024, top_width=2048, batch_per_gpu=256,
    ),
    _preset(
        "candle-32", "CANDLE Uno, 5 towers of 12 x 8192", _PROFILED, candle,
        tower_layers=12, width=8192,
    ),
    _preset(
        "bert-32", "two-stream transformer, 12 blocks of 768, sequence 256", _PROFILED, bert,
        blocks=12, sequence=256, hidden=768, heads=12,
    ),
    _preset("vgg16-32", "VGG16 at 229x229, convolutions padded by 2", _PROFILED, vgg16),
    _preset(
        "resnet50-imagenet", "ResNet50 v1.5 at 224x224, batch norm, 1000 classes",
        "He et al., CVPR 2016, table 1; stride on the 3x3 convolution", resnet50,
        input_size=224, classes=1000, normalise=True,
    ),
    _preset(
        "vgg16-imagenet", "VGG16 at 224x224, 1000 classes",
        "Simonyan and Zisserman, ICLR 2015, configuration D", vgg16,
        input_size=224, padding=1, pool_kernel=2,
    ),
    _preset(
        "bert-base", "BERT-base encoder with pooler, uncased vocabulary, sequence 512",
        "Devlin et al., NAACL 2019", bert_encoder,
    ),
    _preset(
        "bert-large", "BERT-large encoder with pooler, uncased vocabulary, sequence 512",
        "Devlin et al., NAACL 2019", bert_encoder,
        blocks=24, hidden=1024, heads=16, batch_per_gpu=8,
    ),
)  # fmt: skip

# Beside the fields of a transformer, which name its graph as well.
_GRAPH_ARGUMENTS = {"batch_per_gpu", "element_bytes"}

PRESETS: Mapping[str, Preset] = MappingProxyType({preset.name: preset for preset in _ALL})


def get_model(name: str, **overrides: Any) -> ModelGraph:
    """Build a preset, with any of its family's numbers replaced.

    Parameters
    ----------
    name : str
        A name that `list_models` lists.
    **overrides
        Keyword arguments of the preset's family; of a transformer, its fields and the
        arguments of `parallelism.transformers.operators.model_graph`.

    Returns
    -------
    ModelGraph
        Named after the preset.

    Raises
    ------
    InputError
        If the name or a keyword is unknown, or a value out of range.

    Examples
    --------
    >>> get_model("dlrm-16", tables=8).batch_per_gpu
    256
    """
    if not isinstance(name, str):
        raise InputError(f"model is {told(name)}; give a name, such as 'dlrm-16'")
    if name in TRANSFORMERS:
        arguments = {key: overrides.pop(key) for key in _GRAPH_ARGUMENTS & set(overrides)}
        return model_graph(get_transformer(name, **overrides), **arguments)
    if name not in PRESETS:
        known = [*PRESETS, *TRANSFORMERS]
        raise InputError(f"unknown model {name!r}; {suggestion(name, known)}")
    preset = PRESETS[name]
    known = list(inspect.signature(preset.family).parameters)
    for keyword in overrides:
        if keyword not in known:
            raise InputError(
                f"model {name!r} has no parameter {keyword!r}; {suggestion(keyword, known)}"
            )
    return preset.family(**{"name": name, **preset.settings, **overrides})


def summarise(graph: ModelGraph, description: str = "", source: str = "") -> ModelSummary:
    """Count what one model holds and costs."""
    check_kind("graph", graph, ModelGraph, "a model, such as topoopt.models.get_model('vgg16')")
    return ModelSummary(
        name=graph.name,
        description=description,
        source=source,
        operators=len(graph.operators),
        parameters=graph.parameters,
        forward_flops_per_sample=sum(op.forward_flops for op in graph.operators),
        activation_bytes_per_sample=sum(
            graph.output_bytes(index) for index in range(len(graph.operators))
        ),
        batch_per_gpu=graph.batch_per_gpu,
    )


@lru_cache(maxsize=1)
def list_models() -> tuple[ModelSummary, ...]:
    """Summarise every preset in the order of the table, then every transformer.

    Returns
    -------
    tuple of ModelSummary
    """
    workloads = (summarise(get_model(p.name), p.description, p.source) for p in _ALL)
    transformers = (
        summarise(model_graph(model), describe(model), model.source)
        for model in TRANSFORMERS.values()
    )
    return (*workloads, *transformers)
