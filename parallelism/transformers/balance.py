"""What layers of a model, embedding and head have to do, beside each other."""

from functools import lru_cache

from parallelism.device import Server
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.collectives import end_communications
from parallelism.transformers.end_costs import embedding_costs, head_costs
from parallelism.transformers.gpu import GpuRates
from parallelism.transformers.links import near_links
from parallelism.transformers.pass_seconds import layer_seconds, part_seconds
from parallelism.transformers.shares import layer_kinds
from parallelism.transformers.stage_maps import LayerLoads
from parallelism.transformers.stages import Part
from parallelism.transformers.training import Training

# Ends are rounded to parts of a layer, and layers to finer ones of the mean: few differ.
_PARTS_OF_LAYER, _PARTS_OF_MEAN = 4, 64


@lru_cache(maxsize=64)
def _examples(model: Transformer) -> tuple[int, ...]:
    """Return for each layer the first that is like it."""
    return tuple(layer_kinds(model, layer, 1)[0][0] for layer in range(model.layers))


def layer_loads(training: Training, rates: GpuRates, server: Server) -> LayerLoads:
    """Return the seconds of embedding, head and unlike layers over those of a layer in the mean.

    Parameters
    ----------
    training : Training
        Of its layout degrees, microbatch and recomputation count.
    rates : GpuRates
    server : Server

    Returns
    -------
    LayerLoads
        Without messages of context and expert groups; ends in quarters, layers in 64ths. Modules
        for multi-token prediction count as the head's.
    """
    training = training.of_layers
    model, near = training.model, near_links(server)
    far = frozenset({"context", "expert"})
    each: dict[int, float] = {}
    mean = 0.0
    for example, count in layer_kinds(model, 0, model.layers):
        one = layer_seconds(training, example, rates, near, far)
        each[example] = one.forward + one.backward + one.weight
        mean += count * each[example] / model.layers
    found = []
    for head, costs in ((False, embedding_costs), (True, head_costs)):
        part = Part(0, 0, 0, 0, embedding=not head, head=head)
        sent = end_communications(training, part)
        one = part_seconds(training, costs(training), sent, rates, near)
        for example, count in part.kinds(model):
            one = one.plus(layer_seconds(training, example, rates, near, far), count)
        seconds = one.forward + one.backward + one.weight
        found.append(round(_PARTS_OF_LAYER * seconds / mean) / _PARTS_OF_LAYER)
    rounded = {i: round(_PARTS_OF_MEAN * own / mean) / _PARTS_OF_MEAN for i, own in each.items()}
    layers: tuple[float, ...] = ()
    if len(set(rounded.values())) > 1:
        layers = tuple(rounded[example] for example in _examples(model))
    return LayerLoads(found[0], found[1], layers)
