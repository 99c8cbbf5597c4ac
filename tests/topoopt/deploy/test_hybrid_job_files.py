"""Launch settings of models with linear attention, Mamba-2 and layers of one part."""

import functools
import json
from dataclasses import replace

import pytest
from small_layouts import layout_job
from small_plans import planned

import topoopt as to
from codesign_base import InputError
from parallelism.transformers.experts import Experts
from parallelism.transformers.implementation import get_stack
from parallelism.transformers.layout import Layout
from parallelism.transformers.placement import AXES
from parallelism.transformers.presets import get_transformer
from parallelism.transformers.presets_hybrid import HYBRIDS
from parallelism.transformers.stages import parts_of
from tests.helpers.small_transformers import BESIDE, HYBRID, LIGHTNING, SELECTIVE, SHORT
from topoopt.deploy import job_files as job_files_of
from topoopt.deploy.deployment import deployment
from topoopt.deploy.launch import megatron
from topoopt.deploy.launch_exports import exported
from topoopt.deploy.msccl_files import exchanging_groups
from topoopt.deploy.torchtitan import torchtitan
from topoopt.plan.ranks import ranks_of

QWEN = [model.name for model in HYBRIDS if model.linear.kind == "gated-deltanet"]
MAMBA = [model.name for model in HYBRIDS if model.linear.kind == "mamba-2"]
PATTERNS = {
    "nemotron-h-8b": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
    "nemotron-3-nano-30b-a3b": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "granite-4.0-h-small": "MEMEMEMEME*E" + "MEMEMEMEMEMEMEMEME*E" * 3 + "MEMEMEME",
}
"""As released (Granite: of 40 layers those with attention are 5, 15, 25 and 35)."""


@functools.cache
def some_plan():
    """A plan by layouts, for what does not look at its layout or model."""
    job = layout_job(tensor=(2,), pipeline=(2,), context=(1,), microbatch=(1,))
    return planned(job, to.Cluster(4, 3, "100Gbps"), simulated=2, baselines=())


def settings_of(model, layout=None, stack="megatron-core", **changes):
    """Options and notes of a model, or of a preset by its name."""
    plan = some_plan()
    model = get_transformer(model) if isinstance(model, str) else model
    implementation = replace(get_stack(stack), **changes)
    job = replace(plan.job, model=model, implementation=implementation, sequence=4096)
    lines, notes = megatron(plan, job, layout or Layout(data=8))
    words = " ".join(lines).split()
    found = {}
    for word in words:
        if word.startswith("--"):
            name, _, value = word.partition("=")
            found[name] = [value] if value else []
        else:
            found[name].append(word)
    return {name: " ".join(value) for name, value in found.items()}, notes


@pytest.mark.parametrize("name", QWEN)
def test_gated_deltanet_is_an_attention_variant(name):
    model = get_transformer(name)
    found, notes = settings_of(model)
    kinds = json.loads(found["--linear-attention-freq"])
    assert found["--experimental-attention-variant"] == "gated_delta_net"
    assert kinds == [1, 1, 1, 0] * (model.layers // 4)
    values = {"qwen3.5-27b": "48", "qwen3.5-397b-a17b": "64"}.get(name, "32")
    heads = [found[f"--linear-num-{kind}-heads"] for kind in ("key", "value")]
    assert heads == ["16", values]
    assert found["--linear-key-head-dim"] == found["--linear-value-head-dim"] == "128"
    assert found["--linear-conv-kernel-dim"] == "4"
    assert "--attention-output-gate" in found and "--qk-layernorm" in found
    assert ("--moe-shared-expert-gate" in found) == (model.experts is not None)
    assert found["--position-embedding-type"] == "rope"
    assert "--hybrid-layer-pattern" not in found and "--spec" not in found
    assert any("--experimental-attention-variant from core_r0.16 on" in note for note in notes)
    assert any("--attention-output-gate" in note and "core_r0.16" in note for note in notes)


@pytest.mark.parametrize("name", MAMBA)
def test_mamba_is_in_a_pattern_of_blocks(name):
    model = get_transformer(name)
    found, notes = settings_of(model)
    pattern = found["--hybrid-layer-pattern"]
    assert pattern == PATTERNS.get(name, pattern)
    counts = {
        "M": sum(map(model.has_linear, range(model.layers))),
        "*": sum(map(model.has_attention, range(model.layers))),
        "E": sum(map(model.has_experts, range(model.layers))),
    }
    counts["-"] = sum(map(model.has_feed_forward, range(model.layers))) - counts["E"]
    assert {block: pattern.count(block) for block in counts} == counts
    assert len(pattern) == sum(counts.values()) == int(found["--num-layers"])
    linear = model.linear
    assert found["--mamba-state-dim"] == str(linear.key_width)
    assert found["--mamba-num-groups"] == str(linear.key_heads)
    assert found["--mamba-head-dim"] == "64"
    assert found["--mamba-num-heads"] == str(linear.heads)
    assert found["--spec"].endswith(".hybrid_layer_specs hybrid_stack_spec")
    assert found["--position-embedding-type"] == "none"
    assert ("--squared-relu" in found) != ("--swiglu" in found)
    assert ("--squared-relu" in found) == name.startswith("nemotron")
    assert any("from core_r0.18 on" in note and "pretrain_hybrid.py" in note for note in notes)
    assert any("squared ReLU" in note for note in notes)
    assert not any("core_r0.19" in note for note in notes)
    chunk = [note for note in notes if "of linear layers at once" in note]
    assert [("take 128" in note and "counts 256" in note) for note in chunk] == (
        [True] if name == "granite-4.0-h-small" else []
    )


@pytest.mark.parametrize("name", MAMBA)
@pytest.mark.parametrize(
    "layout",
    [
        Layout(data=4, pipeline=2),
        Layout(data=2, pipeline=3),  # uneven parts
        Layout(pipeline=4, virtual_stages=2, schedule="interleaved"),
        Layout(pipeline=2, virtual_stages=2, schedule="breadth-first"),
    ],
)
def test_bars_of_a_pattern_are_the_stages_of_the_plan(name, layout):
    model = get_transformer(name)
    found, _ = settings_of(model, layout)
    segments = found["--hybrid-layer-pattern"].split("|")
    parts = parts_of(model, layout)
    assert len(segments) == len(parts) == layout.pipeline * layout.virtual_stages
    for segment, part in zip(segments, parts, strict=True):
        layers = range(part.first, part.first + part.layers)
        assert len(segment) == sum(map(model.parts, layers))
        assert segment.count("M") == sum(map(model.has_linear, layers))
        assert segment.count("*") == sum(map(model.has_attention, layers))
        assert segment.count("E") == sum(map(model.has_experts, layers))
    assert "".join(segments) == settings_of(model)[0]["--hybrid-layer-pattern"]
    # Megatron-LM refuses these beside a pattern.
    assert "--pipeline-model-parallel-layout" not in found
    assert "--num-virtual-stages-per-pipeline-rank" not in found


def test_stages_of_gated_deltanet_are_cut_as_those_of_other_models():
    found, _ = settings_of("qwen3.5-27b", Layout(pipeline=3))
    cut = found["--pipeline-model-parallel-layout"].split("|")
    assert [stage.count("t") for stage in cut] == [21, 22, 21]


@pytest.mark.parametrize(
    ("name", "tail"), [("nemotron-h-8b", "/*-/*-"), ("nemotron-3-nano-30b-a3b", "/*E/*E")]
)
def test_modules_for_multi_token_prediction_are_patterns_of_their_own(name, tail):
    model = replace(get_transformer(name), mtp_layers=2)
    found, notes = settings_of(model)
    assert found["--hybrid-layer-pattern"].endswith(tail)
    assert found["--mtp-num-layers"] == "2"
    said = "--mtp-use-repeated-layer from core_r0.17 on"
    assert "--mtp-use-repeated-layer" in found
    assert any(said in note for note in notes)
    for other in (replace(model, mtp_repeated=False), replace(model, mtp_layers=1)):
        lines, notes = settings_of(other)
        assert "--mtp-use-repeated-layer" not in lines
        assert not any(said in note for note in notes)
    assert not any("prediction have" in note for note in notes)
    if model.experts:
        found, notes = settings_of(replace(model, mtp_dense=True))
        assert found["--hybrid-layer-pattern"].endswith("/*-/*-")
        assert not any("prediction have" in note for note in notes)


def test_modules_like_a_last_linear_layer_are_said():
    model = replace(get_transformer("qwen3.5-27b"), mtp_layers=1)
    said = "prediction have linear attention"
    assert not any(said in note for note in settings_of(model)[1])
    full = tuple(range(0, 64, 4))
    other = replace(model, linear=replace(model.linear, full_layers=full))
    assert any(said in note for note in settings_of(other)[1])


def test_full_recomputation_keeps_one_input_a_layer_of_the_plan():
    layout = Layout(data=8, recompute="full")
    granite, nemotron = get_transformer("granite-4.0-h-small"), get_transformer("nemotron-h-8b")
    for model, together in ((granite, "2"), (nemotron, "1")):
        found, notes = settings_of(model, layout)
        assert found["--recompute-num-layers"] == together
        assert not any("keeps its input" in note for note in notes)
    mixed = replace(granite, without_feed_forward=(0,))
    found, notes = settings_of(mixed, layout)
    assert found["--recompute-num-layers"] == "1"
    assert any("keeps its input" in note for note in notes)
    assert found["--hybrid-layer-pattern"].startswith("MME")


def test_what_no_release_has_is_said():
    found, (note,) = settings_of("kimi-linear-48b-a3b")
    assert not found and "cannot run this model: megatron.args is not written" in note
    for name in (*QWEN, *MAMBA):
        assert not any("cannot run" in note for note in settings_of(name)[1])
    for model, what in (
        (LIGHTNING, "lightning attention"), (SELECTIVE, "Mamba-1"),
        (SHORT, "gated short convolutions"), (BESIDE, "attention beside Mamba-2 in a layer"),
    ):  # fmt: skip
        found, notes = settings_of(model)
        assert any(note.startswith(f"Megatron-LM has no {what} and cannot") for note in notes)
        assert "--hybrid-layer-pattern" not in found and "--linear-attention-freq" not in found


def test_exchanges_beside_another_microbatch_are_not_in_patterns():
    layout = Layout(data=8, expert=8)
    option, said = "--overlap-moe-expert-parallel-comm", "without a hybrid pattern"
    found, notes = settings_of("qwen3-next-80b-a3b", layout, "megatron-overlap")
    assert option in found and not any(said in note for note in notes)
    found, notes = settings_of("nemotron-3-nano-30b-a3b", layout, "megatron-overlap")
    assert option not in found and any(said in note for note in notes)


@pytest.mark.parametrize(("zero", "warns"), [(1, False), (2, True), (3, True)])
def test_shards_of_mamba_layers_need_a_later_release(zero, warns):
    layout = Layout(data=8, zero=zero)
    for name, expected in (("nemotron-h-8b", warns), ("qwen3.5-27b", False)):
        found = any("core_r0.19" in note for note in settings_of(name, layout)[1])
        assert found == expected


def test_widths_that_fp8_refuses_are_said():
    model = get_transformer("nemotron-h-8b")
    # One head and its number more: 2 * 64 + 1 elements of a projection.
    odd = replace(model, linear=replace(model.linear, key_heads=1, heads=129))
    for one, precision, expected in (
        (model, "fp8", False), (odd, "bf16", False), (odd, "fp8", True),
    ):  # fmt: skip
        notes = settings_of(one, precision=precision)[1]
        assert any("refuses FP8" in note for note in notes) == expected


def test_delayed_scaling_with_modules_computed_again_is_said():
    layout = Layout(data=8, recompute="modules", modules=("norms",))
    for stack, precision, expected in (
        ("nemo", "fp8", True), ("nemo", "bf16", False), ("megatron-core", "fp8", False),
    ):  # fmt: skip
        notes = settings_of("llama3-8b", layout, stack, precision=precision)[1]
        assert any("delayed scaling" in note for note in notes) == expected


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("nemotron-h-8b", {"convolution": 3}, "reaches 4 tokens"),
        ("nemotron-h-8b", {"convolution_bias": False}, "has a bias"),
        ("qwen3.5-27b", {"convolution_bias": True}, "has no bias"),
        ("qwen3.5-27b", {"chunk": 128}, "take 64 tokens"),
    ],
)
def test_fixed_parts_of_linear_layers_are_said(name, changes, words):
    model = get_transformer(name)
    assert not any(words in note for note in settings_of(model)[1])
    other = replace(model, linear=replace(model.linear, **changes))
    assert any(words in note for note in settings_of(other)[1])


def test_patterns_have_other_mixers_too():
    plain = get_transformer("llama3-8b")
    model = replace(plain, without_feed_forward=(0,), without_attention=(1,))
    found, notes = settings_of(model)
    assert found["--hybrid-layer-pattern"] == "*-" + "*-" * 30
    assert found["--position-embedding-type"] == "rope" and "--mamba-state-dim" not in found
    assert not any("squared ReLU" in note for note in notes)
    qwen = replace(get_transformer("qwen3.5-27b"), without_feed_forward=(0,))
    found, _ = settings_of(qwen)
    assert found["--hybrid-layer-pattern"].startswith("GG-G-*-G-")
    assert found["--linear-num-value-heads"] == "48"
    assert "--experimental-attention-variant" not in found
    latent = replace(get_transformer("deepseek-v3"), without_feed_forward=(0,))
    found, notes = settings_of(latent)
    assert found["--hybrid-layer-pattern"].startswith("++-+-+E")
    assert any("latent attention in patterns from core_r0.19 on" in note for note in notes)


def test_more_tensor_ranks_than_key_value_heads_need_a_later_release():
    layout = Layout(tensor=4, data=2, sequence_parallel=True)
    for name, first in (("qwen3-next-80b-a3b", "core_r0.17"), ("nemotron-3-nano-30b-a3b", "0.16")):
        (note,) = [one for one in settings_of(name, layout)[1] if "key-value heads" in one]
        assert f"{first} refuses 2 key-value heads over 4 tensor ranks" in note


@pytest.mark.parametrize("model", HYBRIDS, ids=lambda model: model.name)
def test_torchtitan_has_none_of_them(model):
    plan = some_plan()
    job = replace(plan.job, model=model, sequence=4096)
    lines, (note,) = torchtitan(plan, job, Layout(data=8))
    assert not lines and "cannot run this one: torchtitan.toml is not written" in note
    mamba = model.linear.kind == "mamba-2"
    assert ("Mamba-2" in note) == mamba and ("linear attention" in note) != mamba
    assert ("layers of one part" in note) == model.name.startswith("nemotron")
    assert ("output gate" in note) == model.name.startswith("qwen")
    ordinary = replace(model, linear=None, without_feed_forward=(), without_attention=())
    ordinary = replace(ordinary, attention=replace(model.attention, output_gate=False))
    lines, notes = torchtitan(plan, replace(job, model=ordinary), Layout(data=8))
    assert "[parallelism]" in lines and not any("cannot run" in one for one in notes)


@pytest.mark.parametrize("model", HYBRIDS, ids=lambda model: model.name)
def test_a_deployment_has_launch_files_of_programs_with_the_model_alone(model, monkeypatch):
    made = deployment(some_plan())
    asked = replace(made.plan.job, model=model), Layout(data=8)
    monkeypatch.setattr(job_files_of, "planned_layout", lambda _: asked)
    monkeypatch.setattr(job_files_of, "_slower_notes", lambda *_: [])
    files, notes = job_files_of.job_files(made)
    kda = model.linear.kind == "kda"
    assert "torchtitan.toml" not in files and ("megatron.args" in files) != kda
    assert {"ranks.csv", "torchrun.sh"} <= files.keys()
    left_out = [note for note in notes if note.endswith("is not written")]
    assert len(left_out) == 1 + kda
    with pytest.raises(InputError, match=r"torchtitan v0\.2 has no models with .* is not written"):
        exported(made, "torchtitan")


def test_dense_shared_gates_are_written():
    experts = Experts(4, 2, 64, shared=1, shared_width=64, shared_gate=True)
    model = replace(get_transformer("llama3-8b"), experts=experts)
    found, notes = settings_of(model)
    assert "--moe-shared-expert-gate" in found
    assert any("--moe-shared-expert-gate from core_r0.16 on" in note for note in notes)


@pytest.mark.parametrize("name", [*QWEN, *MAMBA])
def test_context_ranks_are_said_with_the_release_that_has_them(name):
    model = get_transformer(name)
    for context in (1, 2):
        found, notes = settings_of(name, Layout(data=4, context=context))
        assert found["--context-parallel-size"] == str(context)
        told = [note for note in notes if "context ranks beside Gated DeltaNet" in note]
        assert [("core_r0.18" in note) for note in told] == [True] * (
            context > 1 and model.linear.kind == "gated-deltanet"
        )
        if model.linear.kind == "mamba-2":  # patterns are newer than context ranks of Mamba-2
            assert any("from core_r0.18 on, by --hybrid-layer-pattern" in note for note in notes)


def test_context_groups_get_files_of_all_to_alls_in_stages_with_linear_layers():
    """Of a pipeline whose last stage has attention alone."""
    model = replace(HYBRID, layers=2, linear=replace(HYBRID.linear, full_layers=(1,)))
    layout = Layout(tensor=2, context=2, data=2, pipeline=2)
    plan = some_plan()
    record = replace(plan.parallelization, layout=layout, order=AXES)
    groups = exchanging_groups(model, layout, ranks_of(replace(plan, parallelization=record)))
    assert {name: [rank.number for rank in group] for name, group in groups.items()} == {
        "heads-stage0-data0-tensor0": [0, 2], "heads-stage0-data0-tensor1": [1, 3],
        "heads-stage0-data1-tensor0": [4, 6], "heads-stage0-data1-tensor1": [5, 7],
    }  # fmt: skip
    assert not exchanging_groups(model, replace(layout, context=1, data=4), ranks_of(plan))
    assert not exchanging_groups(LIGHTNING, layout, ranks_of(plan))
