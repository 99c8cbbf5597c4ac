"""VGG16: five groups of 3x3 convolutions, each ended by a pool, and three dense layers."""

from collections.abc import Sequence

from codesign_base.arguments import of_python_numbers
from parallelism.graph import ModelGraph
from parallelism.operators.builder import GraphBuilder
from parallelism.operators.elementwise import flatten, pool, softmax
from parallelism.operators.layers import conv2d, dense
from parallelism.operators.shapes import check_counts, check_list


@of_python_numbers
def vgg16(
    *,
    input_size: int = 229,
    input_channels: int = 3,
    depths: Sequence[int] = (2, 2, 3, 3, 3),
    channels: Sequence[int] = (64, 128, 256, 512, 512),
    padding: int = 2,
    pool_kernel: int = 3,
    pool_stride: int = 2,
    hidden: int = 4096,
    classes: int = 1000,
    batch_per_gpu: int = 64,
    element_bytes: int = 4,
    name: str = "vgg16",
) -> ModelGraph:
    """Build VGG16; the defaults are the TopoOpt experiments', not ImageNet's.

    Parameters
    ----------
    input_size, input_channels : int
        The image is ``input_channels x input_size x input_size``.
    depths, channels : sequence of int
        Convolutions and channels of each group.
    padding : int
        Padding of the 3x3 convolutions (2 in the experiments, 1 in the original).
    pool_kernel, pool_stride : int
        Pool after each group (3 in the experiments, 2 in the original).
    hidden, classes : int
        The dense layers: flattened -> ``hidden`` -> ``hidden`` -> ``classes``.
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
        small for the pools.

    References
    ----------
    .. [1] Simonyan and Zisserman, Very Deep Convolutional Networks, ICLR 2015, configuration D.
    .. [2] Wang et al., TopoOpt, NSDI 2023, section 5.1, and its published simulator.
    """
    where = f"model {name!r}"
    check_list(where, depths=depths, channels=channels)
    check_counts(where, hidden=hidden, classes=classes)
    build = GraphBuilder(name, batch_per_gpu, element_bytes)
    x = build.input(input_channels, input_size, input_size)
    for group, (depth, width) in enumerate(zip(depths, channels, strict=True)):
        for layer in range(depth):
            x = conv2d(build, f"conv_{group}_{layer}", x, width, 3, padding=padding)
        x = pool(build, f"pool_{group}", x, pool_kernel, stride=pool_stride)
    x = flatten(build, "flatten", x)
    for layer, width in enumerate((hidden, hidden, classes)):
        x = dense(build, f"dense_{layer}", x, width)
    softmax(build, "softmax", x)
    return build.build()
