"""Presets against published counts: exact where a count is published, else as it is rounded."""

import dataclasses
import subprocess
import sys

import pytest

from codesign_base import InputError
from parallelism.transformers.attention import Attention
from parallelism.transformers.load import is_transformer, load_transformer
from parallelism.transformers.presets import (
    TRANSFORMERS,
    describe,
    get_transformer,
)

# Counts of the released weights.
EXACT = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3.1-8b": 8_030_261_248,
    "llama3.1-70b": 70_553_706_496,
    "llama3.1-405b": 405_853_388_800,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_630_071_296,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v3": 671_026_419_200,
    "deepseek-v3.2": 671_877_944_064,
    "qwen2-0.5b": 494_032_768,
    "qwen2-1.5b": 1_543_714_304,
    "qwen2-7b": 7_615_616_512,
    "qwen2-72b": 72_706_203_648,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    # As the classes of transformers 5.24.0 count them, with routers' biases.
    "qwen3-next-80b-a3b": 79_674_391_296,
    "qwen3.5-27b": 26_895_998_464,
    "qwen3.5-35b-a3b": 34_660_610_688,
    "qwen3.5-397b-a17b": 396_346_350_336,
    "glm-5": 743_911_218_432,
    "kimi-linear-48b-a3b": 49_122_681_728,
    "granite-4.0-h-small": 32_207_337_984,
    "nemotron-h-8b": 8_100_852_736,
    "nemotron-h-56b": 56_324_350_464,
    "nemotron-3-nano-30b-a3b": 31_577_940_288,
    "nemotron-3-super-120b-a12b": 120_668_707_840,
    "vit-b-16": 86_567_656,
    "vit-b-32": 88_224_232,
    "vit-l-16": 304_326_632,
    "vit-h-14": 632_045_800,
}

# Billions as the papers print them, and the digit that they are rounded to.
ROUNDED = {
    "gpt3-125m": (0.125, 0.001), "gpt3-350m": (0.356, 0.001), "gpt3-760m": (0.760, 0.001),
    "gpt3-1.3b": (1.3, 0.1), "gpt3-2.7b": (2.7, 0.1), "gpt3-6.7b": (6.7, 0.1),
    "gpt3-13b": (13.0, 0.2), "gpt3-175b": (175.0, 1.0),
    "megatron-1.7b": (1.7, 0.1), "megatron-3.6b": (3.6, 0.1), "megatron-7.5b": (7.5, 0.1),
    "megatron-18.4b": (18.4, 0.1), "megatron-39.1b": (39.1, 0.1),
    "megatron-76.1b": (76.1, 0.1), "megatron-145.6b": (145.6, 0.1),
    "megatron-310.1b": (310.1, 0.1), "megatron-529.6b": (529.6, 0.1),
    "megatron-1008b": (1008.0, 0.1),
    "megatron-22b": (22, 1), "megatron-175b": (175, 1), "megatron-530b": (530, 1),
    "megatron-1t": (1000, 20),
    "turing-nlg-17b": (17, 1), "qwen2-57b-a14b": (57.4, 0.1),
    # Of text alone; Scout is printed as 109 with its encoder of images, Gemma as 27 without its.
    "llama4-scout": (107.8, 0.1), "llama4-maverick": (400, 2), "gemma3-27b": (27, 0.1),
    "kimi-k2": (1026, 2), "glm-4.5": (355, 5), "minimax-m2": (230, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_counts_are_those_of_the_released_weights(name: str) -> None:
    assert get_transformer(name).parameters == EXACT[name]


@pytest.mark.parametrize("name", ROUNDED)
def test_counts_round_to_the_published_billions(name: str) -> None:
    billions, digit = ROUNDED[name]
    assert abs(get_transformer(name).parameters / 1e9 - billions) <= digit / 2


def test_every_preset_is_held_against_a_published_count_and_names_its_source() -> None:
    assert set(TRANSFORMERS) == set(EXACT) | set(ROUNDED)
    assert [model.name for model in TRANSFORMERS.values()] == list(TRANSFORMERS)
    assert all(model.source and describe(model) for model in TRANSFORMERS.values())


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("mixtral-8x7b", 12.9), ("mixtral-8x22b", 39.1), ("deepseek-v2", 21), ("deepseek-v3", 37),
        ("qwen1.5-moe-a2.7b", 2.7), ("qwen2-57b-a14b", 14), ("qwen3-30b-a3b", 3.3),
        ("qwen3-235b-a22b", 22), ("llama4-scout", 17), ("llama4-maverick", 17),
    ],
)  # fmt: skip
def test_active_counts_are_the_published_ones(name: str, billions: float) -> None:
    assert get_transformer(name).active_parameters / 1e9 == pytest.approx(billions, rel=0.02)


@pytest.mark.parametrize(("name", "billions"), [("gpt-oss-20b", 3.61), ("gpt-oss-120b", 5.13)])
def test_active_counts_without_embedding_are_the_published_ones(name: str, billions: float) -> None:
    # Table 1 of the model card counts the projection to words, not the embedding.
    model = get_transformer(name)
    active = model.active_parameters - model.vocabulary * model.hidden
    assert round(active / 1e9, 2) == billions


@pytest.mark.parametrize("name", [name for name in ROUNDED if name.startswith("megatron")])
def test_megatron_counts_follow_the_papers_formula(name: str) -> None:
    model = get_transformer(name)
    # Narayanan et al., SC 2021, equation 2; the formula leaves out the norm at the end.
    blocks, h, v, s = model.layers, model.hidden, model.vocabulary, model.sequence
    formula = 12 * blocks * h * h + 13 * blocks * h + (v + s) * h
    assert model.parameters == formula + 2 * h


def test_fields_may_be_replaced() -> None:
    model = get_transformer("llama3-8b", sequence=512, layers=2)
    assert (model.sequence, model.layers, model.name) == (512, 2, "llama3-8b")
    assert load_transformer("llama3-8b", layers=2, sequence=512) == model
    assert is_transformer("gpt2")
    assert not is_transformer("dlrm-16")
    assert dataclasses.replace(model, layers=32, sequence=8192) == get_transformer("llama3-8b")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: get_transformer("gpt-2"), "did you mean 'gpt2'"),
        (lambda: load_transformer("llama-8b"), "config.json"),
        (lambda: get_transformer("gpt2", layer=3), "did you mean 'layers'"),
        (lambda: get_transformer("gpt2", layers=0), "layers is 0"),
        (lambda: load_transformer("gpt2", window="x"), "window is 'x'; give None, or a Sliding"),
        (lambda: load_transformer("gpt2", window=128), "window is 128; give None"),
        (lambda: load_transformer("gpt2", window={"width": 8}), "window is {'width': 8}; give"),
        (lambda: load_transformer("gpt2", experts="x"), "experts is 'x'; give None, or Experts"),
        (lambda: load_transformer("gpt2", experts=8), "experts is 8; give None, or Experts"),
        (lambda: load_transformer("gpt2", attention="x"), "attention is 'x'; give an Attention"),
        (lambda: load_transformer("gpt2", attention=None), "attention is None; give an Attention"),
        (lambda: Attention(2, 2, 8, latent="x"), "latent is 'x'; give None, or a LatentAttention"),
        (lambda: get_transformer("gpt2", layer_norms=3), "layer_norms is 3"),
        (lambda: get_transformer("gpt2", layer_norms=1), "parallel=True"),
        (lambda: get_transformer("vit-b-16", tied=True), "no vocabulary projection"),
        (lambda: get_transformer("vit-b-16", sequence=1), "class token"),
        (lambda: get_transformer("vit-b-16", vocabulary=10), "give one of them"),
    ],
)
def test_what_is_unknown_or_wrong_is_refused(call, words: str) -> None:
    with pytest.raises(InputError) as error:
        call()
    assert words in str(error.value)


@pytest.mark.slow  # lint-imports sees cycles
def test_rooms_that_need_each_other_may_be_imported_in_any_order() -> None:
    program = """
import importlib, pkgutil, sys, parallelism.importers, parallelism.models, parallelism.transformers
names = [
    module.name
    for room in (parallelism.importers, parallelism.models, parallelism.transformers)
    for module in pkgutil.iter_modules(room.__path__, room.__name__ + ".")
]
for name in [*names, "parallelism.model_file"]:
    for loaded in [one for one in sys.modules if one.startswith("parallelism")]:
        del sys.modules[loaded]
    importlib.import_module(name)
assert len(names) > 20
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
