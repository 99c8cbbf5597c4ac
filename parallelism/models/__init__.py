"""The model zoo: workloads as operator graphs, one file a family, and named presets."""

from parallelism.models.bert import bert, bert_encoder
from parallelism.models.candle import candle
from parallelism.models.dlrm import dlrm
from parallelism.models.ncf import ncf
from parallelism.models.presets import (
    PRESETS,
    ModelSummary,
    Preset,
    get_model,
    list_models,
    summarise,
)
from parallelism.models.resnet import resnet50
from parallelism.models.vgg import vgg16

__all__ = [
    "PRESETS",
    "ModelSummary",
    "Preset",
    "bert",
    "bert_encoder",
    "candle",
    "dlrm",
    "get_model",
    "list_models",
    "ncf",
    "resnet50",
    "summarise",
    "vgg16",
]
