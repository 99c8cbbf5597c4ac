"""The public sweep: workbooks are read as they are, and ranks are those of a small case by hand."""

import json
import zipfile
from itertools import product

import pytest
from typer.testing import CliRunner

from codesign_base import InputError
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.attention import Attention
from parallelism.transformers.layout import Layout
from parallelism.transformers.stages import layer_weights
from topoopt.cli.app import app
from topoopt.studies.validation.sweep import balanced_stages, validate_sweep

HEAD = ("World Size", "Average Step Time", "activation_checkpointing_type", "kernel",
        "micro_batch_size", "model_parallel_size", "pipe_parallel_size")  # fmt: skip
FLASH = "flash_attention2 + RMS kernel"
NAME = "llama_13B_bfloat16_64_GPUs_all_runs.xlsx"


def workbook(path, trials) -> None:
    """Write the parts of a workbook that hold its cells."""
    rows = [("title",), HEAD, *trials]
    texts = sorted({cell for row in rows for cell in row})
    space = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    cells = "".join(
        "<row>" + "".join(f'<c r="{chr(65 + i)}{n}" t="s"><v>{texts.index(cell)}</v></c>'
                          for i, cell in enumerate(row)) + "</row>"
        for n, row in enumerate(rows, start=1)
    )  # fmt: skip
    shared = "".join(f"<si><t>{text}</t></si>" for text in texts)
    with zipfile.ZipFile(path, "w") as book:
        book.writestr("xl/sharedStrings.xml", f"<sst {space}>{shared}</sst>")
        book.writestr("xl/worksheets/sheet1.xml", f"<worksheet {space}>{cells}</worksheet>")


def trial(time, micro, tensor, pipeline, kernel=FLASH):
    return ("64", time, "disabled", kernel, micro, tensor, pipeline)


def test_a_workbook_is_ranked_and_weighed(tmp_path) -> None:
    workbook(tmp_path / NAME, [
        trial("26.5", "1", "1", "1"), trial("31.3", "1", "2", "1"), trial("34.8", "1", "2", "2"),
        trial("OOM Error", "8", "1", "1"), trial("30.0", "1", "1", "2", "torch"),
        trial("Other Error", "2", "2", "2"),
    ])  # fmt: skip
    (found,) = validate_sweep(tmp_path)
    assert (found.ran, found.failed) == (3, 1)
    assert found.spearman == 1.0
    assert found.regret == 0.0
    assert (found.rejected, found.accepted) == (0, 0)
    shown = CliRunner().invoke(app, ["validate", "llm", "--sweep", str(tmp_path), "--json"])
    assert json.loads(shown.stdout)["files"][0]["ran"] == 3
    assert "1.000" in CliRunner().invoke(app, ["validate", "llm", "--sweep", str(tmp_path)]).stdout


def test_rank_correlation_with_ties_does_not_depend_on_the_order_of_rows(tmp_path) -> None:
    rows = [
        trial("31.0", "1", "1", "1"), trial("31.0", "1", "2", "1"), trial("26.5", "1", "2", "2"),
        trial("40.0", "2", "2", "2"),
    ]  # fmt: skip
    found = []
    for turned in (rows, rows[::-1]):
        workbook(tmp_path / NAME, turned)
        found.append(validate_sweep(tmp_path)[0].spearman)
    assert found[0] == found[1]
    assert -1.0 < found[0] < 1.0


def test_layouts_that_all_took_as_long_are_refused(tmp_path) -> None:
    workbook(tmp_path / NAME, [trial("31.0", "1", "1", "1"), trial("31.0", "1", "2", "1")])
    with pytest.raises(InputError, match="or all as long"):
        validate_sweep(tmp_path)


@pytest.mark.parametrize(("layers", "stages", "vocabulary"), [
    (7, 3, 1000), (7, 4, 40000), (9, 4, 20000), (6, 6, 90000), (5, 1, 100), (8, 2, 200000),
])  # fmt: skip
def test_the_largest_stage_has_as_few_parameters_as_any_split_allows(
    layers, stages, vocabulary
) -> None:
    model = Transformer("small", layers, 64, Attention(4, 4, 16), 256, vocabulary, 128)
    whole = layer_weights(model, 0, Layout())
    size, ends = whole.dense, vocabulary * 64

    def largest(counts) -> float:
        parts = [count * size for count in counts]
        parts[0] += ends
        parts[-1] += ends
        return max(parts)

    found = balanced_stages(model, stages)
    if stages == 1:
        assert found == ()
        return
    assert sum(found) == layers
    every = [each for each in product(range(layers + 1), repeat=stages) if sum(each) == layers]
    assert largest(found) == min(largest(each) for each in every)


@pytest.mark.parametrize(("row", "said"), [
    (trial("26.5", "1", "two", "1"), "model_parallel_size is 'two'"),
    (trial("26.5", "1", "0", "1"), "model_parallel_size is '0'"),
    (trial("26.5", "", "1", "1"), "micro_batch_size is ''"),
    (trial("26.5", "1", "8", "3"), "World Size is 64, no multiple of .* = 24"),
    (trial("0.0", "1", "1", "1"), "Average Step Time is '0.0'"),
])  # fmt: skip
def test_rows_that_no_run_can_have_are_refused(tmp_path, row, said) -> None:
    workbook(tmp_path / NAME, [trial("26.5", "1", "1", "1"), trial("31.3", "1", "2", "1"), row])
    with pytest.raises(InputError, match=said):
        validate_sweep(tmp_path)


@pytest.mark.parametrize("without", ["kernel", "pipe_parallel_size"])
def test_a_workbook_without_a_column_is_refused(tmp_path, monkeypatch, without) -> None:
    monkeypatch.setitem(globals(), "HEAD", tuple("other" if h == without else h for h in HEAD))
    workbook(tmp_path / NAME, [trial("26.5", "1", "1", "1")])
    with pytest.raises(InputError, match=f"no column '{without}'"):
        validate_sweep(tmp_path)


def test_directories_without_the_sweep_are_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="no file"):
        validate_sweep(tmp_path)
    (tmp_path / NAME).write_text("no workbook")
    with pytest.raises(InputError, match="whole workbook"):
        validate_sweep(tmp_path)
