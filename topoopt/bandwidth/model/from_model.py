"""Our own model graphs as workloads: data parallelism, with tensor parallelism inside it."""

from codesign_base import InputError
from codesign_base.counted import counted
from parallelism.accelerators import get_accelerator
from parallelism.device import RooflineModel, Server
from parallelism.graph import Mode, ModelGraph, Operator, OperatorKind
from topoopt.bandwidth.model.collectives import Collective
from topoopt.bandwidth.model.workload import Layer, LayerPhase, LayerWorkload

ACCELERATOR = get_accelerator("a100")
"""What compute is timed on."""


def model_workload(graph: ModelGraph, tensor: int = 1) -> LayerWorkload:
    """Return one iteration of a model graph on one NPU.

    Parameters
    ----------
    graph : ModelGraph
    tensor : int, optional
        NPUs of a tensor-parallel group; 1 is plain data parallelism.

    Returns
    -------
    LayerWorkload
        A layer an operator. A replica has the model's batch per GPU for each of its NPUs.

    Raises
    ------
    InputError
        If the group is below 1, or no operator can be split ``tensor`` ways.

    Notes
    -----
    Tensor parallelism goes through the operators in order: attention by heads; a dense layer
    or convolution by columns, or by rows if its input is already sliced; what has one slice in
    and one out (activations, pooling) stays sliced. Operators with parameters that cannot be
    split are replicated, with the whole group doing the same work. A row split and heads end
    in an AllReduce of the output; a column split and heads AllReduce the gradient of their
    input; a sliced output that is read whole is AllGathered.

    A table is sharded over all NPUs, its vectors exchanged all to all, where that moves fewer
    bytes than reducing the gradient of the whole table. Backward compute is half input and
    half weight gradient; the optimizer's step counts with the weight gradient.
    """
    if tensor < 1:
        raise InputError(f"workload {graph.name!r}: tensor parallelism {tensor}; give at least 1")
    samples = graph.batch_per_gpu * tensor
    model = RooflineModel(Server(accelerator=ACCELERATOR, gpus=1))
    sliced = [False] * len(graph.operators)
    layers: list[Layer] = []
    everywhere: list[str] = []
    split = 0
    for index, op in enumerate(graph.operators):
        output = graph.output_bytes(index) * samples
        if op.sparse and 2 * output < 2 * graph.parameter_bytes(index):
            layers.append(_table(graph, model, index, samples, output, tensor))
            everywhere.append(op.name)
            continue
        inputs_sliced = any(sliced[source] for source in op.inputs)
        mode = _choose(op, tensor, inputs_sliced)
        degree = 1 if mode is None else tensor
        split += mode is not None
        time = model.operator_time(graph, index, samples, 1, degree, mode or Mode.OUTPUT)
        into = sum(graph.output_bytes(source) for source in op.inputs) * samples
        forward, backward = _collectives(op, mode, tensor, inputs_sliced, into, output)
        gradient = graph.parameter_bytes(index) / degree
        sliced[index] = mode is not None and mode.slices_output
        own = op.parameters > 0
        layers.append(
            Layer(
                op.name,
                LayerPhase(time.forward, *forward),
                LayerPhase(time.backward / 2 if own else time.backward, *backward),
                LayerPhase(
                    time.backward / 2 + time.update if own else 0.0,
                    Collective.ALL_REDUCE if own else Collective.NONE,
                    gradient if own else 0.0,
                ),
            )
        )
    if tensor > 1 and split == 0:
        raise InputError(
            f"model {graph.name!r} has no operator that splits {tensor} ways; "
            "give another tensor parallelism"
        )
    notes = [
        f"{graph.name}: {counted(samples, 'sample')} a replica of {counted(tensor, 'NPU')}; "
        f"{model.notes[0]}"
    ]
    if everywhere:
        tables = counted(
            len(everywhere), f"table of {graph.name} is", f"tables of {graph.name} are"
        )
        notes.append(f"{tables} sharded over all NPUs")
    return LayerWorkload(graph.name, tuple(layers), tuple(notes), tensor, tuple(everywhere))


def _choose(op: Operator, tensor: int, sliced: bool) -> Mode | None:
    """Return how an operator is split, or None if every NPU of the group does all of it."""
    if tensor == 1 or op.kind is OperatorKind.CONCAT:
        # Slices of what lies side by side are not those of the inputs' slices.
        return None
    whole_input = (Mode.HEADS, Mode.OUTPUT)
    wanted = (Mode.REDUCTION, Mode.CHANNEL, Mode.OUTPUT) if sliced else whole_input
    for mode in wanted:
        found = op.split(mode)
        if found is not None and found.extent % tensor == 0:
            return mode
    return None


def _collectives(
    op: Operator, mode: Mode | None, tensor: int, sliced: bool, into: float, output: float
) -> tuple[tuple[Collective, float], tuple[Collective, float]]:
    """Return the collectives after forward and input gradient, over the tensor group."""
    nothing = (Collective.NONE, 0.0)
    if tensor == 1:
        return nothing, nothing
    gathers = sliced and (mode is None or not mode.slices_input)
    gather = (Collective.ALL_GATHER, into / tensor) if gathers else nothing
    if mode is None or mode == Mode.CHANNEL:
        return gather, nothing
    reads_model_input = not op.inputs
    if mode == Mode.REDUCTION:
        return (Collective.ALL_REDUCE, output), nothing
    backward = nothing if reads_model_input else (Collective.ALL_REDUCE, into)
    if gathers:
        # The slices' gradients are summed and scattered in one step.
        backward = (Collective.REDUCE_SCATTER, into)
    if mode == Mode.HEADS:
        return (Collective.ALL_REDUCE, output), backward
    return gather, backward


def _table(
    graph: ModelGraph, model: RooflineModel, index: int, samples: int, output: float, tensor: int
) -> Layer:
    """A table sharded over all NPUs: each looks up its share of everybody's vectors."""
    time = model.operator_time(graph, index, samples, 1, 1, Mode.OUTPUT)
    size = output / tensor
    return Layer(
        graph.operators[index].name,
        LayerPhase(time.forward / tensor, Collective.ALL_TO_ALL, size),
        LayerPhase(0.0, Collective.ALL_TO_ALL, size),
        LayerPhase(time.backward / tensor),
    )
