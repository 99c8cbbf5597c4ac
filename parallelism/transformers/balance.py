"""What embedding and head weigh beside the layers of a model."""

from parallelism.device import Server
from parallelism.transformers.collectives import end_communications
from parallelism.transformers.end_costs import embedding_costs, head_costs
from parallelism.transformers.gpu import GpuRates
from parallelism.transformers.links import near_links
from parallelism.transformers.pass_seconds import layer_seconds, part_seconds
from parallelism.transformers.shares import layer_kinds
from parallelism.transformers.stage_maps import Ends
from parallelism.transformers.stages import Part
from parallelism.transformers.training import Training

# Weights are rounded to parts of a layer: few differ.
_PARTS_OF_LAYER = 4


def ends_in_layers(training: Training, rates: GpuRates, server: Server) -> Ends:
    """Return the seconds of embedding and of head over those of a layer, in quarters.

    Parameters
    ----------
    training : Training
        Of its layout degrees, microbatch and recomputation count.
    rates : GpuRates
    server : Server

    Returns
    -------
    Ends
        Without messages of context and expert groups. Modules for multi-token prediction count
        as the head's.
    """
    training = training.of_layers
    model, near = training.model, near_links(server)
    far = frozenset({"context", "expert"})
    layer = 0.0
    for example, count in layer_kinds(model, 0, model.layers):
        one = layer_seconds(training, example, rates, near, far)
        layer += count * (one.forward + one.backward + one.weight) / model.layers
    found = []
    for head, costs in ((False, embedding_costs), (True, head_costs)):
        part = Part(0, 0, 0, 0, embedding=not head, head=head)
        sent = end_communications(training, part)
        one = part_seconds(training, costs(training), sent, rates, near)
        for example, count in part.kinds(model):
            one = one.plus(layer_seconds(training, example, rates, near, far), count)
        seconds = one.forward + one.backward + one.weight
        found.append(round(_PARTS_OF_LAYER * seconds / layer) / _PARTS_OF_LAYER)
    return found[0], found[1]


__all__ = ["ends_in_layers"]
