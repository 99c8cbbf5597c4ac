"""How the model ranks the layouts of the public sweep of Hagemann et al. (2023), and fits them."""

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from codesign_base import InputError
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.attention import Attention
from parallelism.transformers.gpu import rates_of
from parallelism.transformers.implementation import ALEPH_ALPHA_2023, Implementation
from parallelism.transformers.iteration import iteration_time
from parallelism.transformers.layout import Layout
from parallelism.transformers.links import links_of
from parallelism.transformers.memory import memory_use
from parallelism.transformers.schedules import schedule_of
from parallelism.transformers.stages import layer_weights
from parallelism.transformers.training import Training

_SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
# Layers, hidden width, heads, feed-forward width of LLaMA; its vocabulary here.
_SIZES = {"13B": (40, 5120, 40, 13824), "30B": (60, 6656, 52, 17920), "65B": (80, 8192, 64, 22016)}
_VOCABULARY = 128_000
# Without the kernel norms run in FP32, operation by operation, and keep two FP32 copies.
_KERNELS = {
    "flash_attention2 + RMS kernel": ALEPH_ALPHA_2023,
    "flash_attention2": replace(ALEPH_ALPHA_2023, norms=20.0, norm_bytes=8.0),
}
_DEGREES = ("World Size", "model_parallel_size", "pipe_parallel_size", "micro_batch_size")
_COLUMNS = (*_DEGREES, "Average Step Time", "kernel", "activation_checkpointing_type")
# Servers up to which `bucketing` holds; it falls with their number.
_NEAR_SERVERS = 8


@dataclass(frozen=True, slots=True)
class SweepFile:
    """How the model does on one file.

    Parameters
    ----------
    name : str
    ran, failed : int
        Layouts with a time, and that ran out of memory.
    spearman : float
        Rank correlation of the model's and measured times of those that ran.
    regret : float
        Measured time of the model's fastest over that of the measured fastest, less 1.
    error : float
        Mean of the errors without sign.
    rejected, accepted : int
        Of those that ran, what does not fit by the model; of those that failed, what does.
    """

    name: str
    ran: int
    failed: int
    spearman: float
    regret: float
    error: float
    rejected: int
    accepted: int


def validate_sweep(directory: str | Path) -> tuple[SweepFile, ...]:
    """Compare the model with every file of the sweep in a directory.

    Parameters
    ----------
    directory : path
        With the ``.xlsx`` files of the sweep's repository, itself or below.

    Returns
    -------
    tuple of SweepFile
        Layouts with FlashAttention 2; other kernels are left out.

    Raises
    ------
    InputError
        If there is no such file, or one cannot be read.
    """
    paths = sorted(Path(directory).rglob("llama_*GPUs*.xlsx"), key=lambda path: path.name)
    if not paths:
        raise InputError(
            f"sweep {str(directory)!r}: no file llama_*GPUs*.xlsx; give the directory data of the "
            "sweep's repository"
        )
    return tuple(_compared(path) for path in paths)


def _compared(path: Path) -> SweepFile:
    size = path.name.split("_")[1]
    if size not in _SIZES:
        raise InputError(f"sweep file {path.name!r}: size {size!r} is not {', '.join(_SIZES)}")
    layers, hidden, heads, width = _SIZES[size]
    long = "8k" in path.name
    model = Transformer(
        f"LLaMA {size}", layers, hidden, Attention(heads, heads, hidden // heads), width,
        _VOCABULARY, 8192 if long else 2048, gated=True,
    )  # fmt: skip
    batch = 512 if long else 2048
    rates, links = rates_of("a100"), links_of("a100", 8, 25e9)
    measured, modelled = [], []
    failed = rejected = accepted = 0
    for trial, stack, seconds in _trials(path):
        layout = replace(trial, stage_layers=balanced_stages(model, trial.pipeline))
        order = schedule_of(layout, batch)
        training = Training(model, layout, stack, model.sequence)
        use = max(u.total for u in memory_use(training, order))
        fits = use <= rates.accelerator.usable_bytes
        if seconds is None:
            failed += 1
            accepted += fits
            continue
        rejected += not fits
        far = max(1.0, layout.gpus / links.gpus / _NEAR_SERVERS)
        spread = replace(stack, bucketing=stack.bucketing / far)
        measured.append(seconds)
        modelled.append(
            iteration_time(replace(training, implementation=spread), order, rates, links)
        )
    real, ours = np.array(measured), np.array(modelled)
    if len(set(measured)) < 2:
        raise InputError(
            f"sweep file {path.name!r}: fewer than two layouts ran, or all as long; give a whole "
            "file"
        )
    from scipy.stats import spearmanr

    # The model may not tell the layouts apart, which says nothing of their order.
    alike = float(np.ptp(ours)) == 0.0
    return SweepFile(
        path.stem, len(measured), failed, 0.0 if alike else float(spearmanr(real, ours).statistic),
        float(real[ours.argmin()] / real.min() - 1.0), float(np.abs(ours / real - 1.0).mean()),
        rejected, accepted,
    )  # fmt: skip


@lru_cache(maxsize=64)
def balanced_stages(model: Transformer, stages: int) -> tuple[int, ...]:
    """Return the layers of each stage where the largest has as few parameters as can be.

    Embedding and head count with the layers; so does DeepSpeed's partition by parameters.

    Parameters
    ----------
    model : Transformer
        All of whose layers are alike.
    stages : int
        At most as many as layers.

    Returns
    -------
    tuple of int
        Of several such splits the one with most in the last stages; none of one stage.
    """
    if stages == 1:
        return ()
    ends = float(model.vocabulary * model.hidden)
    whole = layer_weights(model, 0, Layout())
    sizes = [ends, *[whole.dense + whole.expert] * model.layers, ends]
    before = np.concatenate(([0.0], np.cumsum(sizes)))
    # Largest stage where the first ones end before each module; where the last of them begins.
    largest, begins = before, []
    for _ in range(stages - 1):
        own = before[None, :] - before[:, None]
        worst = np.maximum(largest[:, None], np.where(own < 0.0, np.inf, own))
        begins.append(worst.argmin(axis=0))
        largest = worst.min(axis=0)
    cuts = [len(sizes)]
    for begin in reversed(begins):
        cuts.append(int(begin[cuts[-1]]))
    cuts.append(0)
    inside = np.clip(cuts[::-1], 1, model.layers + 1)
    return tuple(int(count) for count in np.diff(inside))


def _trials(path: Path) -> Iterator[tuple[Layout, Implementation, float | None]]:
    """Yield each layout once, with its seconds, or None where it ran out of memory."""
    found: dict[tuple[Layout, str], float | None] = {}
    rows = _rows(path)
    head = rows[1] if len(rows) > 1 else {}
    missing = [title for title in _COLUMNS if title not in head.values()]
    if missing:
        raise InputError(
            f"sweep file {path.name}: row 2 has no column {missing[0]!r}; give a whole workbook"
        )
    for row in rows[2:]:
        trial = {title: row.get(column, "") for column, title in head.items()}
        time, kernel = trial["Average Step Time"], trial["kernel"]
        ran = re.fullmatch(r"\d+(\.\d+)?", time)
        if kernel not in _KERNELS or not (ran or time == "OOM Error"):
            continue
        if ran and float(time) == 0.0:
            raise InputError(
                f"sweep file {path.name}: Average Step Time is {time!r}; give seconds above 0"
            )
        gpus, tensor, pipeline, microbatch = (_count(path, trial, title) for title in _DEGREES)
        if gpus % (tensor * pipeline):
            raise InputError(
                f"sweep file {path.name}: World Size is {gpus}, no multiple of "
                f"model_parallel_size * pipe_parallel_size = {tensor * pipeline}; correct the row"
            )
        layout = Layout(
            tensor=tensor, pipeline=pipeline, data=gpus // (tensor * pipeline),
            microbatch=microbatch,
            sequence_parallel=tensor > 1 and trial.get("sequence_parallel") == "1",
            recompute="full" if trial["activation_checkpointing_type"] == "every_layer" else "none",
        )  # fmt: skip
        if ran or (layout, kernel) not in found:
            found[layout, kernel] = float(time) if ran else None
    for (layout, kernel), seconds in found.items():
        yield layout, _KERNELS[kernel], seconds


def _count(path: Path, trial: dict[str, str], title: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,8}", trial[title]):
        raise InputError(
            f"sweep file {path.name}: {title} is {trial[title]!r}; give a whole number of at least "
            "1"
        )
    return int(trial[title])


def _rows(path: Path) -> list[dict[str, str]]:
    """Return the first sheet of a workbook: text of the cells of each row, by column."""
    try:
        with zipfile.ZipFile(path) as book:
            strings = [
                "".join(text.text or "" for text in item.iter(f"{_SHEET}t"))
                for item in ElementTree.fromstring(book.read("xl/sharedStrings.xml"))
            ]
            sheet = ElementTree.fromstring(book.read("xl/worksheets/sheet1.xml"))
    except (OSError, KeyError, zipfile.BadZipFile, ElementTree.ParseError) as error:
        raise InputError(f"sweep file {path}: {error}; give a whole workbook") from None
    found = []
    for row in sheet.iter(f"{_SHEET}row"):
        cells = {}
        for cell in row.iter(f"{_SHEET}c"):
            value = cell.findtext(f"{_SHEET}v", "")
            column = re.sub(r"\d", "", cell.get("r", ""))
            try:
                cells[column] = strings[int(value)] if cell.get("t") == "s" else value
            except (ValueError, IndexError):
                raise InputError(
                    f"sweep file {path}: cell {cell.get('r')} has no text; give a whole workbook"
                ) from None
        found.append(cells)
    return found
