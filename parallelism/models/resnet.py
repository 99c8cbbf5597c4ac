"""ResNet50: four stages of bottleneck blocks."""

from collections.abc import Sequence

from codesign_base.arguments import of_python_numbers
from parallelism.graph import ModelGraph
from parallelism.operators.builder import GraphBuilder
from parallelism.operators.elementwise import activation, add, flatten, pool, softmax
from parallelism.operators.layers import batch_norm, conv2d, dense
from parallelism.operators.shapes import Tensor, check_counts, check_list


@of_python_numbers
def resnet50(
    *,
    input_size: int = 229,
    input_channels: int = 3,
    depths: Sequence[int] = (3, 4, 6, 3),
    channels: Sequence[int] = (64, 128, 256, 512),
    head_pool: int = 7,
    classes: int = 10,
    normalise: bool = False,
    batch_per_gpu: int = 128,
    element_bytes: int = 4,
    name: str = "resnet50",
) -> ModelGraph:
    """Build ResNet50; the defaults are the TopoOpt experiments', not ImageNet's.

    Parameters
    ----------
    input_size, input_channels : int
        The image is ``input_channels x input_size x input_size``.
    depths, channels : sequence of int
        Blocks and inner channels of each stage; a block's output has four times as many.
    head_pool : int
        Window of the last pool, stride 1 (one output at 224x224, four at 229x229).
    classes : int
    normalise : bool
        Batch normalisation after every convolution, which then has no bias. Without it (the
        experiments) convolutions have biases.
    batch_per_gpu, element_bytes : int
    name : str
        Name of the graph.

    Returns
    -------
    ModelGraph

    Raises
    ------
    InputError
        If a number is out of range, the two sequences differ in length, or the image is too
        small.

    Notes
    -----
    The stride is that of the 3x3 convolution ("v1.5"). Rectifiers after convolutions are fused; the
    one after the addition is an operator of its own, as in measured profiles.

    References
    ----------
    .. [1] He et al., Deep Residual Learning for Image Recognition, CVPR 2016, table 1.
    .. [2] Wang et al., TopoOpt, NSDI 2023, section 5.1, and its published simulator.
    """
    where = f"model {name!r}"
    check_list(where, depths=depths, channels=channels)
    check_counts(where, classes=classes)
    build = GraphBuilder(name, batch_per_gpu, element_bytes)

    def conv(
        label: str, x: Tensor, out: int, kernel: int, stride: int = 1, padding: int = 0
    ) -> Tensor:
        x = conv2d(build, label, x, out, kernel, stride=stride, padding=padding, bias=not normalise)
        return batch_norm(build, f"{label}_norm", x) if normalise else x

    x = build.input(input_channels, input_size, input_size)
    x = conv("stem", x, channels[0], 7, stride=2, padding=3)
    x = pool(build, "stem_pool", x, 3, stride=2, padding=1)
    for stage, (depth, width) in enumerate(zip(depths, channels, strict=True)):
        for block in range(depth):
            prefix = f"stage_{stage}_{block}"
            stride = 2 if stage > 0 and block == 0 else 1
            shortcut = x
            y = conv(f"{prefix}_reduce", x, width, 1)
            y = conv(f"{prefix}_middle", y, width, 3, stride=stride, padding=1)
            y = conv(f"{prefix}_expand", y, 4 * width, 1)
            if stride > 1 or shortcut.channels != 4 * width:
                shortcut = conv(f"{prefix}_project", shortcut, 4 * width, 1, stride=stride)
            x = add(build, f"{prefix}_add", [shortcut, y])
            x = activation(build, f"{prefix}_relu", x)
    x = pool(build, "head_pool", x, head_pool)
    x = flatten(build, "flatten", x)
    x = dense(build, "classifier", x, classes)
    softmax(build, "softmax", x)
    return build.build()
