"""Published layouts of presets are layouts that a plan looks at."""

from dataclasses import replace

import pytest

from parallelism.transformers.choices import Choices, LayoutSpace
from parallelism.transformers.enumeration import enumerate_layouts
from parallelism.transformers.load import load_transformer
from parallelism.transformers.published import PUBLISHED, published_layouts
from topoopt.problem.job import Job, nvlink_server

# Presets and GPUs whose published layouts are known, samples, and how many fit.
CASES = [
    ("gpt3-175b", 128, 256, 1), ("llama3-70b", 64, 128, 2), ("llama3.1-405b", 1024, 512, 1),
    ("llama3.1-405b", 1152, 504, 2), ("deepseek-v3", 512, 4096, 1), ("deepseek-v3", 2048, 15360, 3),
]  # fmt: skip


@pytest.mark.parametrize(("name", "gpus", "batch", "count"), CASES)
def test_published_layouts_fill_the_gpus_that_they_were_run_on(name, gpus, batch, count):
    model = load_transformer(name)
    found = published_layouts(LayoutSpace(model, gpus, 8, batch, model.sequence))
    assert len(found) == count
    assert all(layout.gpus == gpus for layout in found)


@pytest.mark.parametrize(
    ("name", "gpus", "batch", "count"),
    [*CASES[:2], *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES[2:])],
)
def test_only_recomputation_by_modules_is_not_enumerated(name, gpus, batch, count):
    model = load_transformer(name)
    usual = set(enumerate_layouts(LayoutSpace(model, gpus, 8, batch, model.sequence)))
    for layout in published_layouts(LayoutSpace(model, gpus, 8, batch, model.sequence)):
        assert (layout in usual) == (layout.recompute == "none")


def test_a_family_has_them_among_its_layouts_once():
    few = Choices(tensor=(1, 2), pipeline=(8, 16), expert=(64,), zero=(1,))
    server = nvlink_server("h100", 8)
    model = load_transformer("deepseek-v3")
    family = Job(model, server=server, global_batch=15360, choices=few).family(256)
    layouts = family.layouts()
    assert len(set(layouts)) == len(layouts)
    assert len(family.published) == 3
    assert set(family.published) <= set(layouts)


@pytest.mark.parametrize(
    "choices",
    [Choices(tensor=(8,)), Choices(virtual_stages=(2,)), Choices(zero=(3,)), Choices(context=(1,))],
)
def test_choices_leave_out_published_layouts_too(choices):
    model = load_transformer("llama3-70b")
    found = published_layouts(LayoutSpace(model, 64, 8, 128, 8192, choices))
    assert all(layout.context == 1 for layout in found)
    assert len(found) == (1 if choices == Choices(context=(1,)) else 0)


def test_what_does_not_divide_is_left_out():
    model = load_transformer("llama3-70b")
    assert published_layouts(LayoutSpace(model, 48, 8, 128, 8192)) == ()
    assert published_layouts(LayoutSpace(model, 64, 8, 127, 8192)) == ()
    assert published_layouts(LayoutSpace(model, 64, 2, 128, 8192)) == ()
    assert published_layouts(LayoutSpace(replace(model, name="mine"), 64, 8, 128, 8192)) == ()
    assert all(source for rows in PUBLISHED.values() for _, source in rows)
