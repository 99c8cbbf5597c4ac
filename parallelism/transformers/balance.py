"""What embedding and head weigh beside the layers of a model."""

from parallelism.device import Server
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.collectives import end_communications
from parallelism.transformers.end_costs import embedding_costs, head_costs
from parallelism.transformers.gpu import GpuRates
from parallelism.transformers.implementation import Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.links import near_links
from parallelism.transformers.pass_seconds import layer_seconds, part_seconds
from parallelism.transformers.shares import layer_kinds
from parallelism.transformers.stage_maps import Ends
from parallelism.transformers.stages import Part

# Weights are rounded to parts of a layer: few differ.
_PARTS_OF_LAYER = 4


def ends_in_layers(
    model: Transformer,
    layout: Layout,
    rates: GpuRates,
    server: Server,
    implementation: Implementation,
    *,
    sequence: int | None = None,
) -> Ends:
    """Return the seconds of embedding and of head over those of a layer, in quarters.

    Parameters
    ----------
    model : Transformer
    layout : Layout
        Of which degrees, microbatch and recomputation count.
    rates : GpuRates
    server : Server
    implementation : Implementation
    sequence : int, optional
        Tokens of a sample, the model's own by default.

    Returns
    -------
    Ends
        Without messages of context and expert groups. Modules for multi-token prediction count
        as the head's.
    """
    layout = layout.of_layers
    near = near_links(server)
    far = frozenset({"context", "expert"})
    layer = 0.0
    for example, count in layer_kinds(model, 0, model.layers):
        one = layer_seconds(
            model, example, layout, rates, near, implementation, far, sequence=sequence
        )
        layer += count * (one.forward + one.backward + one.weight) / model.layers
    found = []
    for head, costs in ((False, embedding_costs), (True, head_costs)):
        part = Part(0, 0, 0, 0, embedding=not head, head=head)
        sent = end_communications(model, part, layout, sequence=sequence)
        work = costs(model, layout, implementation, sequence=sequence)
        one = part_seconds(work, sent, layout, implementation, rates, near)
        for example, count in part.kinds(model):
            more = layer_seconds(
                model, example, layout, rates, near, implementation, far, sequence=sequence
            )
            one = one.plus(more, count)
        seconds = one.forward + one.backward + one.weight
        found.append(round(_PARTS_OF_LAYER * seconds / layer) / _PARTS_OF_LAYER)
    return found[0], found[1]


__all__ = ["ends_in_layers"]
