"""Settings of Megatron-LM and torchtitan: the plan's layout, or a note of what they lack."""

import json
import tomllib
from dataclasses import replace

import pytest
from pipelined_plans import pipelined_plan, with_layout
from small_layouts import layout_job
from small_plans import planned

import topoopt as to
from parallelism.transformers.experts import Experts
from parallelism.transformers.implementation import STACKS, get_stack
from parallelism.transformers.layout import Layout
from parallelism.transformers.placement import Placement
from parallelism.transformers.presets import TRANSFORMERS, get_transformer
from topoopt.deploy.deployment import deployment
from topoopt.deploy.job_files import job_files
from topoopt.deploy.launch import megatron, planned_layout
from topoopt.deploy.launch_exports import exported
from topoopt.deploy.torchtitan import torchtitan
from topoopt.fabric import score
from topoopt.plan.rebuild import Rebuilt, rebuild
from topoopt.problem.units import format_time


def options(lines):
    """Return options and values of a file of arguments."""
    found = {}
    for word in " ".join(lines).split():
        if word.startswith("--"):
            name, _, value = word.partition("=")
            found[name] = value or True
        elif name == "--spec" and found[name] is not True:
            found[name] += f" {word}"  # of a module and a name in it
        else:
            assert found[name] is True
            found[name] = word
    return found


def test_megatron_gets_the_layout():
    plan = with_layout(
        pipelined_plan(), tensor=4, data=2, schedule="interleaved", virtual_stages=4,
        recompute="full", zero=1,
    )  # fmt: skip
    lines, notes = megatron(plan, *planned_layout(plan))
    found = options(lines)
    assert found["--tensor-model-parallel-size"] == "4"
    assert found["--pipeline-model-parallel-size"] == "2"
    assert found["--num-virtual-stages-per-pipeline-rank"] == "4"
    assert found["--recompute-granularity"] == "full"
    assert found["--use-distributed-optimizer"] is True
    assert found["--sequence-parallel"] is True
    assert found["--global-batch-size"] == str(plan.global_batch)
    tokenizer, note = sorted(notes, key=lambda said: "tokenizer" not in said)
    assert "names a tokenizer of numbers" in tokenizer
    assert "CUDA_DEVICE_MAX_CONNECTIONS=1" in note
    assert found["--overlap-grad-reduce"] is found["--overlap-param-gather"] is True
    assert found["--tp-comm-overlap"] is True


@pytest.mark.parametrize("stack", sorted(STACKS))
def test_megatron_runs_what_the_stack_counts_or_says_that_it_does_not(stack):
    plan = pipelined_plan()
    counted = get_stack(stack)
    job = replace(plan.job, model=get_transformer("deepseek-v3"), implementation=counted)
    layout = Layout(tensor=2, data=8, pipeline=1, expert=8, zero=1, sequence_parallel=True)
    lines, notes = megatron(plan, job, layout)
    found, said = options(lines), " ".join(notes)
    assert (found["--moe-token-dispatcher-type"] == "flex") == counted.forwarded_tokens
    assert ("--moe-enable-deepep" in found) == counted.forwarded_tokens
    assert found["--moe-grouped-gemm"] is True
    assert ("--overlap-grad-reduce" in found) == (counted.overlap_data > 0)
    assert ("--tp-comm-overlap" in found) == (counted.overlap_tensor > 0)
    assert ("--overlap-moe-expert-parallel-comm" in found) == (counted.overlap_expert > 0)
    assert ("--grad-reduce-in-bf16" in found) == (counted.gradient_bytes == 2)
    moments = found.get("--exp-avg-dtype", "fp32"), found.get("--exp-avg-sq-dtype", "fp32")
    assert (moments == ("bf16", "bf16")) == (counted.optimizer_bytes == 8)
    assert ("bytes of optimizer state" in said) == (counted.optimizer_bytes == 4)
    other = not stack.startswith(("megatron-core", "nemo", "megatron-moe", "megatron-deepep",
                                  "megatron-overlap"))  # fmt: skip
    assert (f"the stack {stack!r}" in said) == other
    assert ("counts FP8" in said) == (stack == "deepseek-v3")
    if counted.overlap_expert:
        full = replace(layout, recompute="full")
        experts = replace(layout, recompute="modules", modules=("experts",))
        shared = replace(experts, modules=("shared-experts",))
        for again, beside in ((full, False), (experts, False), (shared, True)):
            asked = options(megatron(plan, job, again)[0])
            assert ("--overlap-moe-expert-parallel-comm" in asked) == beside
        assert any("as hidden" in note for note in megatron(plan, job, full)[1])
    delayed = replace(counted, precision="fp8")
    fp8 = options(megatron(plan, replace(job, implementation=delayed), layout)[0])
    assert (fp8["--fp8-recipe"] == "delayed") == counted.delayed_scaling
    assert ("--fp8-param-gather" in fp8) == counted.fp8_weights
    titan = " ".join(torchtitan(plan, job, layout)[1])
    assert (f"the stack {stack!r}" in titan) == (not stack.startswith("fsdp2"))


def test_megatron_asks_more_of_experts():
    plan = pipelined_plan()
    job = replace(plan.job, model=get_transformer("llama4-maverick"))
    layout = Layout(tensor=2, data=8, expert=2, sequence_parallel=False)
    lines, notes = megatron(plan, job, layout)
    assert "--moe-router-pre-softmax" in lines
    assert any("refuses expert ranks beside tensor ranks" in note for note in notes)
    lines, notes = megatron(plan, job, replace(layout, sequence_parallel=True))
    assert not any("refuses" in note for note in notes)
    job = replace(plan.job, model=get_transformer("mixtral-8x7b"))
    assert "--moe-router-pre-softmax" not in megatron(plan, job, layout)[0]


def test_messages_of_tensor_groups_hide_with_sequence_parallelism_only():
    plan = with_layout(
        pipelined_plan(), tensor=2, pipeline=1, schedule="1f1b", virtual_stages=1, zero=0,
        sequence_parallel=False,
    )  # fmt: skip
    lines, notes = megatron(plan, *planned_layout(plan))
    assert "--tp-comm-overlap" not in lines
    assert any("without sequence parallelism" in note for note in notes)
    assert "--overlap-grad-reduce" in lines and "--overlap-param-gather" not in lines


@pytest.mark.parametrize("zero", [2, 3])
def test_megatron_shards_more_by_its_fsdp(zero):
    plan = with_layout(pipelined_plan(), tensor=1, context=1, zero=zero)
    lines, notes = megatron(plan, *planned_layout(plan))
    found = options(lines)
    assert found["--use-megatron-fsdp"] is True
    assert found["--ckpt-format"] == "fsdp_dtensor"
    assert any("refuses CUDA_DEVICE_MAX_CONNECTIONS=1" in note for note in notes)


@pytest.mark.parametrize(
    ("model", "fields", "words"),
    [
        ("qwen2-1.5b", {"tensor": 4}, "2 key-value heads over 4 tensor ranks"),
        ("qwen2-1.5b", {"tensor": 2}, None),
        ("deepseek-v3", {"tensor": 2}, None),
        ("vit-b-32", {"tensor": 1, "context": 2}, "50 tokens over 2 context ranks"),
    ],
)
def test_what_megatron_refuses_is_said(model, fields, words):
    plan = with_layout(
        pipelined_plan(), pipeline=1, schedule="1f1b", virtual_stages=1, **fields
    )  # fmt: skip
    architecture = get_transformer(model)
    job = replace(plan.job, model=architecture, sequence=architecture.sequence)
    refused = [
        note for note in megatron(plan, job, planned_layout(plan)[1])[1] if "refuses" in note
    ]
    assert [words in note for note in refused] == ([True] if words else [])


@pytest.mark.parametrize(
    ("model", "expected"),
    [("llama3-8b", "layernorm"), ("mixtral-8x7b", "layernorm moe_act")],
)
def test_modules_that_a_model_lacks_are_not_asked_for(model, expected):
    plan = with_layout(
        pipelined_plan(), pipeline=1, schedule="1f1b", virtual_stages=1, recompute="modules",
        modules=("norms", "up-projections", "activations"),
    )  # fmt: skip
    job = replace(plan.job, model=get_transformer(model))
    text = " ".join(megatron(plan, job, planned_layout(plan)[1])[0])
    assert f"--recompute-modules {expected} --" in text
    plan = with_layout(plan, recompute="modules", modules=("up-projections",))
    assert "--recompute" not in " ".join(megatron(plan, job, planned_layout(plan)[1])[0])


@pytest.mark.parametrize(
    ("model", "expected"),
    [("llama3-8b", "mlp"), ("mixtral-8x7b", "moe mlp"), ("deepseek-v3", "shared_experts moe mlp")],
)
def test_whole_parts_that_a_model_lacks_are_not_asked_for(model, expected):
    plan = with_layout(
        pipelined_plan(), pipeline=1, schedule="1f1b", virtual_stages=1, recompute="modules",
        modules=("shared-experts", "experts", "feed-forward"),
    )  # fmt: skip
    delayed = replace(plan.job.implementation, delayed_scaling=True, precision="fp8")
    job = replace(plan.job, model=get_transformer(model), implementation=delayed)
    lines, notes = megatron(plan, job, planned_layout(plan)[1])
    assert f"--recompute-granularity selective --recompute-modules {expected}" in lines
    # Refused of norms and nonlinearities only.
    assert not any("delayed scaling" in note for note in notes)


def test_torchtitan_spreads_experts_over_ranks_that_shard():
    plan = pipelined_plan()
    job = replace(plan.job, model=get_transformer("mixtral-8x7b"))
    layout = Layout(tensor=2, data=8, expert=4, zero=0)
    lines, notes = torchtitan(plan, job, layout)
    split = tomllib.loads("\n".join(lines))["parallelism"]
    assert split["data_parallel_replicate_degree"] == 2
    assert split["data_parallel_shard_degree"] == 4
    assert any("stage 2 over 4 ranks" in note for note in notes)


def test_uneven_stages_are_written_layer_by_layer():
    plan = pipelined_plan()
    model = replace(plan.job.model, layers=9)
    layout = replace(plan.parallelization.layout, pipeline=2, schedule="1f1b", virtual_stages=1)
    lines, _ = megatron(plan, replace(plan.job, model=model), layout)
    stages = options(lines)["--pipeline-model-parallel-layout"].split("|")
    assert [stage.count("t") for stage in stages] == [5, 4]
    assert stages[0].startswith("E")
    assert stages[-1].endswith("L")
    text = "\n".join(torchtitan(plan, replace(plan.job, model=model), layout)[0])
    parts = tomllib.loads(text)["parallelism"]["module_fqns_per_model_part"]
    assert [len([m for m in part if m.startswith("layers.")]) for part in parts] == [5, 4]


def test_modules_for_multi_token_prediction_are_on_the_last_stage():
    plan = pipelined_plan()
    model = replace(plan.job.model, layers=9, positions=0, mtp_layers=2)
    layout = replace(plan.parallelization.layout, pipeline=2, schedule="1f1b", virtual_stages=1)
    job = replace(plan.job, model=model)
    lines, notes = megatron(plan, job, layout)
    found = options(lines)
    assert found["--mtp-num-layers"] == "2"
    assert found["--pipeline-model-parallel-layout"] == "Ettttt|ttttmmL"
    assert not any("multi-token" in note or "mtp" in note for note in notes)
    experts = Experts(4, 2, 64)
    for dense in (False, True):
        other = replace(job, model=replace(model, experts=experts, mtp_dense=dense))
        notes = megatron(plan, other, layout)[1]
        assert any("those of the plan are dense" in note for note in notes) == dense
    learned = replace(job, model=replace(model, positions=2048))
    assert any("learned positions" in note for note in megatron(plan, learned, layout)[1])
    text, said = torchtitan(plan, job, layout)
    tomllib.loads("\n".join(text))
    assert any("no multi-token prediction" in note and "2 of its" in note for note in said)


def test_breadth_first_schedules_are_one_group_of_microbatches_in_megatron():
    plan = with_layout(pipelined_plan(), schedule="breadth-first", virtual_stages=4)
    layout = plan.parallelization.layout
    found = options(megatron(plan, *planned_layout(plan))[0])
    together = plan.global_batch // layout.data // layout.microbatch
    assert found["--microbatch-group-size-per-virtual-pipeline-stage"] == str(together)


@pytest.mark.parametrize("schedule", ["gpipe", "eager-1f1b", "zero-bubble"])
def test_schedules_that_megatron_lacks_are_said(schedule):
    plan = with_layout(pipelined_plan(), schedule=schedule, virtual_stages=1)
    assert any(schedule in note for note in megatron(plan, *planned_layout(plan))[1])


@pytest.mark.parametrize(
    ("schedule", "chunks", "name"),
    [
        ("eager-1f1b", 1, "1F1B"),
        ("zero-bubble", 1, "1F1B"),
        ("breadth-first", 4, "Interleaved1F1B"),
        ("interleaved", 2, "Interleaved1F1B"),
        ("1f1b", 1, "1F1B"),
    ],
)
def test_torchtitan_reads_orders_that_pytorch_has_no_name_for(schedule, chunks, name):
    plan = with_layout(pipelined_plan(), schedule=schedule, virtual_stages=chunks)
    lines, notes = torchtitan(plan, *planned_layout(plan))
    split = tomllib.loads("\n".join(lines))["parallelism"]
    assert split["pipeline_parallel_schedule"] == name  # how parts go round the ranks
    read = split.get("pipeline_parallel_schedule_csv")
    assert read == (None if schedule in ("interleaved", "1f1b") else "pipeline.csv")
    assert any("pipeline.csv" in note for note in notes) == (read is not None)
    # Gradients of weights apart from those of inputs need autograd's graph (PyTorch, issue 161904).
    assert any("of torch.compile" in note for note in notes) == (schedule == "zero-bubble")
    eager = replace(plan.job, implementation=get_stack("fsdp2-eager"))
    notes = torchtitan(plan, eager, plan.parallelization.layout)[1]
    assert not any("torch.compile" in note for note in notes)


def test_folded_pipelines_are_torchtitan_s():
    plan = with_layout(
        pipelined_plan(), schedule="zero-bubble-v", virtual_stages=2, stage_layers=(2, 3, 2, 1)
    )
    job, layout = planned_layout(plan)
    assert job.model.layers == 8
    split = tomllib.loads("\n".join(torchtitan(plan, job, layout)[0]))["parallelism"]
    assert split["pipeline_parallel_schedule"] == "ZBVZeroBubble"
    parts = split["module_fqns_per_model_part"]
    assert [len([m for m in part if m.startswith("layers.")]) for part in parts] == [2, 3, 2, 1]
    # Megatron-LM has one part a stage, of as many layers.
    lines, notes = megatron(plan, job, layout)
    assert not {"--pipeline-model-parallel-layout", "--num-virtual-stages-per-pipeline-rank"} & set(
        options(lines)
    )
    assert any("1f1b,interleaved,breadth-first" in note for note in notes)
    assert any("layers are even" in note for note in notes)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_torchtitan_gets_the_layout(zero):
    plan = with_layout(pipelined_plan(), zero=zero)
    layout = plan.parallelization.layout
    lines, notes = torchtitan(plan, *planned_layout(plan))
    found = tomllib.loads("\n".join(lines))
    split = found["parallelism"]
    degrees = [split[f"data_parallel_{kind}_degree"] for kind in ("replicate", "shard")]
    # Beside a pipeline there are no replicas alone.
    assert degrees == ([layout.data // 2, 2] if zero == 0 else [1, layout.data])
    assert any("ZeRO" in note for note in notes) == (zero < 2)
    batch = found["training"]
    assert batch["global_batch_size"] == plan.global_batch
    # With a pipeline all microbatches of a rank are one local batch.
    assert batch["local_batch_size"] * layout.data == plan.global_batch
    assert split["pipeline_parallel_microbatch_size"] == layout.microbatch


@pytest.mark.parametrize("zero", [1, 3])
def test_copies_of_sharded_states_are_replicas_there(zero):
    plan = with_layout(
        pipelined_plan(), tensor=1, context=1, data=8, pipeline=2, zero=zero, replicate=4
    )
    layout = plan.parallelization.layout
    lines, notes = torchtitan(plan, *planned_layout(plan))
    split = tomllib.loads("\n".join(lines))["parallelism"]
    assert split["data_parallel_replicate_degree"] == 4
    assert split["data_parallel_shard_degree"] == layout.data // 4
    assert any("once an iteration" in note for note in notes)
    found = options(megatron(plan, *planned_layout(plan))[0])
    assert found["--num-distributed-optimizer-instances"] == "4"
    assert found.get("--outer-dp-sharding-strategy") == ("no_shard" if zero == 3 else None)


@pytest.mark.parametrize(
    ("degrees", "shard", "ranks"),
    [
        ({"data": 8}, 1, 0), ({"data": 4, "tensor": 2}, 2, 2), ({"data": 6, "pipeline": 2}, 2, 2),
        ({"data": 3, "pipeline": 2}, 3, 3), ({"data": 1, "pipeline": 8}, 1, 0),
        ({"data": 4, "context": 2}, 1, 2), ({"data": 4, "context": 2, "tensor": 2}, 1, 2),
    ],
)  # fmt: skip
def test_torchtitan_has_replicas_alone_without_other_ranks_only(degrees, shard, ranks):
    plan = replace(pipelined_plan(), global_batch=24)
    layout = Layout(**degrees, zero=0)
    lines, notes = torchtitan(plan, plan.job, layout)
    split = tomllib.loads("\n".join(lines))["parallelism"]
    assert split["data_parallel_shard_degree"] == shard
    assert split["data_parallel_replicate_degree"] * shard == layout.data
    assert any("FP32" in note for note in notes) == (layout.data * layout.context == 1)
    said = [note for note in notes if "ZeRO stage 0" in note]
    assert len(said) == (ranks > 0) and all(f"over {ranks} ranks" in note for note in said)


@pytest.mark.parametrize(
    ("name", "found", "pipelines", "contexts"),
    [
        ("llama3-8b", ("llama3", "8B"), True, True),
        ("deepseek-v3", ("deepseek_v3", "671B"), True, False),
        ("qwen3-30b-a3b", ("qwen3", "30B-A3B"), False, False),
        ("gpt-oss-20b", ("gpt_oss", "20b"), False, False),
        ("mixtral-8x7b", None, True, True), ("gpt3-13b", None, True, True),
    ],
)  # fmt: skip
def test_torchtitan_names_its_models_and_what_they_lack(name, found, pipelines, contexts):
    plan = pipelined_plan()
    job = replace(plan.job, model=get_transformer(name))
    lines, notes = torchtitan(plan, job, Layout(data=2, context=2, pipeline=2))
    file, said = tomllib.loads("\n".join(lines)), " ".join(notes)
    asked = file.get("model")
    assert asked == (None if found is None else {"name": found[0], "flavor": found[1]})
    assert ("refuses pipelines" in said) != pipelines
    assert ("no context ranks" in said) != contexts
    assert ("layers are to be added" in said) == (name == "mixtral-8x7b")
    plain = torchtitan(plan, job, Layout(data=8))[1]
    assert not any("pipelines" in note or "context ranks for" in note for note in plain)
    # Of another size it is another model, of another length of samples the same.
    for changed, same in (({"layers": 16}, False), ({"sequence": 512}, True)):
        other = replace(job, model=get_transformer(name, **changed))
        file = tomllib.loads("\n".join(torchtitan(plan, other, Layout(data=8))[0]))
        assert ("model" in file) == (same and found is not None)


@pytest.mark.parametrize(
    ("name", "degrees", "sequence", "said"),
    [
        ("qwen3-30b-a3b", {"tensor": 4, "expert": 2, "expert_tensor": 2}, 4096, "over 2 of 4 tens"),
        ("qwen3-30b-a3b", {"tensor": 4, "expert": 8, "expert_tensor": 1}, 4096, ""),
        ("mixtral-8x7b", {"tensor": 4, "expert": 2}, 4096, ""),
        ("qwen3-235b-a22b", {"tensor": 8}, 4096, "4 key-value heads over 8 tensor ranks"),
        ("deepseek-v3", {"tensor": 8}, 4096, ""),
        ("llama3-8b", {"tensor": 4, "context": 4}, 4112, "it wants a multiple of 32"),
        ("llama3-8b", {"tensor": 4, "context": 4}, 4096, ""),
    ],
)  # fmt: skip
def test_torchtitan_refuses_what_its_notes_say(name, degrees, sequence, said):
    plan = pipelined_plan()
    job = replace(plan.job, model=get_transformer(name), sequence=sequence)
    notes = torchtitan(plan, job, Layout(data=2, **degrees))[1]
    refused = [note for note in notes if "refuses" in note or "cannot divide" in note]
    assert len(refused) == (said != "") and all(said in note for note in refused)


@pytest.mark.parametrize(
    ("name", "tensor", "context", "kind"),
    [
        ("gemma3-27b", 2, 2, "a2a"), ("gemma3-27b", 8, 4, "all_gather"),
        ("gpt-oss-20b", 2, 4, "a2a"), ("gpt-oss-20b", 2, 1, None), ("llama3-8b", 1, 4, None),
        ("llama4-scout", 1, 4, None),
    ],
)  # fmt: skip
def test_context_ranks_of_windows_and_sinks_are_no_rings(name, tensor, context, kind):
    plan = pipelined_plan()
    job = replace(plan.job, model=get_transformer(name))
    layout = Layout(tensor=tensor, context=context, data=2)
    lines, notes = megatron(plan, job, layout)
    assert options(lines).get("--cp-comm-type") == kind
    assert any("the plan counts rings" in note for note in notes) == (kind is not None)
    assert not any("Megatron-LM refuses this" in note for note in notes)
    if name == "gpt-oss-20b":  # eight key-value heads
        lines, notes = megatron(plan, job, replace(layout, tensor=4, context=4))
        assert options(lines)["--cp-comm-type"] == "a2a"
        assert any("4 context ranks cannot share out 8 key-value heads" in note for note in notes)


@pytest.mark.parametrize("stack", sorted(STACKS))
def test_dropout_is_the_stack_s(stack):
    plan = pipelined_plan()
    job = replace(plan.job, implementation=get_stack(stack))
    found = options(megatron(plan, job, Layout(data=8))[0])
    without = {"--attention-dropout": "0.0", "--hidden-dropout": "0.0"}
    assert (without.items() <= found.items()) != get_stack(stack).dropout


def test_overlap_of_experts_asks_for_connections():
    plan = pipelined_plan()
    counted = get_stack("megatron-overlap")
    job = replace(plan.job, model=get_transformer("deepseek-v3"), implementation=counted)
    layout = Layout(tensor=2, data=8, expert=8, zero=1, sequence_parallel=True)
    notes = megatron(plan, job, layout)[1]
    assert sum("CUDA_DEVICE_MAX_CONNECTIONS" in note for note in notes) == 1
    assert any("above 1, such as 32" in note for note in notes)
    assert not any("one more forward pass" in note for note in notes)
    parts = replace(layout, pipeline=2, schedule="interleaved", virtual_stages=2)
    assert any("one more forward pass" in note for note in megatron(plan, job, parts)[1])


@pytest.mark.parametrize("name", sorted(TRANSFORMERS))
def test_every_transformer_has_settings_or_notes(name):
    plan = pipelined_plan()
    job = replace(plan.job, model=get_transformer(name))
    layout = Layout(data=plan.parallelization.layout.data)
    lines, notes = megatron(plan, job, layout)
    model = job.model
    if not lines:
        assert model.linear.kind == "kda" and notes[0].endswith("megatron.args is not written")
        return
    found = options(lines)
    pattern = found.get("--hybrid-layer-pattern")
    assert found["--num-layers"] == str(len(pattern) if pattern else model.layers)
    assert ("--vocab-size" in found) == bool(model.vocabulary)
    assert model.vocabulary or any("vocabulary" in note for note in notes)
    if model.experts is not None:
        with_experts = json.loads(found["--moe-layer-freq"])
        first, every = model.experts.first_dense, model.experts.every
        layers = range(first + every - 1, model.layers, every)
        assert sum(with_experts) == sum(map(model.has_feed_forward, layers))
        assert len(with_experts) == int(found["--num-layers"])
        assert ("--moe-shared-expert-gate" in found) == model.experts.shared_gate
        if pattern:
            assert with_experts == [int(block == "E") for block in pattern]
    slides = [int(model.slides(layer)) for layer in range(model.layers)]
    chunked = model.window is not None and model.window.chunked
    assert any("chunks" in note for note in notes) == chunked
    if sum(slides) and not chunked:
        assert json.loads(found["--window-attn-skip-freq"]) == slides
        assert found["--window-size"] == f"{model.window.width - 1},0"
    assert ("--softmax-type" in found) == model.attention.sinks
    assert ("--attention-output-gate" in found) == model.attention.output_gate
    newer = {"--attention-output-gate", "--moe-latent-size", "--moe-shared-expert-gate"}
    said = " ".join(note for note in notes if "core_r0.16 on" in note)
    assert all((name in said) == (name in found) for name in newer)
    lines, notes = torchtitan(plan, job, layout)
    assert ("[parallelism]" in lines) != any("is not written" in note for note in notes)
    tomllib.loads("\n".join(lines))


def test_folded_experts_modules_and_fp8_are_said():
    plan = pipelined_plan()
    model = get_transformer("deepseek-v3")
    fp8 = replace(plan.job.implementation, precision="fp8")
    job = replace(plan.job, model=model, implementation=fp8)
    layout = replace(
        plan.parallelization.layout, pipeline=1, schedule="1f1b", virtual_stages=1, expert=2,
        expert_tensor=1, recompute="modules", modules=("norms", "up-projections", "activations"),
    )  # fmt: skip
    lines, notes = megatron(plan, job, layout)
    (modules,) = (line for line in lines if "--recompute-modules" in line)
    assert modules == (
        "--recompute-granularity selective --recompute-modules layernorm mla_up_proj moe_act"
    )
    found = options(line for line in lines if line != modules)
    assert (found["--expert-model-parallel-size"], found["--expert-tensor-parallel-size"]) == (
        "2", "1",
    )  # fmt: skip
    assert (found["--fp8-format"], found["--fp8-recipe"]) == ("hybrid", "tensorwise")
    assert (found["--moe-router-num-groups"], found["--moe-router-group-topk"]) == ("8", "4")
    assert any("of experts only" in note for note in notes)
    text, said = torchtitan(plan, job, layout)
    file = tomllib.loads("\n".join(text))
    assert file["parallelism"]["expert_tensor_parallel_degree"] == 1
    assert file["activation_checkpoint"]["mode"] == "full"
    assert any("FP8" in note for note in said) and any("single modules" in note for note in said)


def test_megatron_gets_an_indexer():
    plan = pipelined_plan()
    model = get_transformer("deepseek-v3.2")
    job = replace(plan.job, model=model)
    layout = replace(plan.parallelization.layout, pipeline=1, schedule="1f1b", virtual_stages=1)
    lines, notes = megatron(plan, job, layout)
    found = options(lines)
    assert found["--experimental-attention-variant"] == "dsa"
    assert found["--dsa-indexer-n-heads"] == "64"
    assert found["--dsa-indexer-head-dim"] == "128"
    assert found["--dsa-indexer-topk"] == "2048"
    assert any("dsa from core_r0.16 on" in note for note in notes)
    assert not any("share chosen keys" in note for note in notes)
    assert "--cp-comm-type" not in found
    assert "--qk-layernorm" in found  # norms of latent vectors
    said = torchtitan(plan, job, layout)[1]
    assert any("keys that an indexer chooses" in note for note in said)
    latent = model.attention.latent
    shared = replace(latent, indexer=replace(latent.indexer, shared=(1,)))
    job = replace(job, model=replace(model, attention=replace(model.attention, latent=shared)))
    lines, notes = megatron(plan, job, replace(layout, context=2))
    assert options(lines)["--cp-comm-type"] == "all_gather"
    assert any("share chosen keys" in note for note in notes)
    plain = options(megatron(plan, replace(job, model=get_transformer("deepseek-v3")), layout)[0])
    assert "--experimental-attention-variant" not in plain


def test_a_deployment_says_what_megatron_takes_by_its_own_schedule(monkeypatch):
    cluster, notes = to.Cluster(4, 3, "1Gbps"), {}
    for schedule in ("1f1b", "eager-1f1b"):
        job = layout_job(
            tensor=(2,), pipeline=(4,), context=(1,), microbatch=(1,), schedules=(schedule,)
        )
        plan = planned(job, cluster, simulated=2, baselines=())
        notes[schedule] = [one for one in job_files(deployment(plan))[1] if "by 1F1B" in one]
    built, layout = rebuild(plan), plan.parallelization.layout
    slower = Placement(replace(layout, schedule="1f1b"), 4, plan.parallelization.order)
    took = score(built.fabric, built.family.build(slower))
    assert took > 1.001 * plan.time_s
    # A single output of another program does not simulate it.
    with monkeypatch.context() as patch:
        patch.setattr(Rebuilt, "simulated", None)
        for kind in ("nccl", "pipeline", "torchtitan", "netbox"):
            assert exported(deployment(plan), kind)[0]
    assert set(exported(deployment(plan), "megatron")[1]) >= set(notes["eager-1f1b"])
    assert notes == {
        "1f1b": [],
        "eager-1f1b": [
            f"Megatron-LM: by 1F1B an iteration takes {format_time(took)} on the plan's network, "
            f"{took / plan.time_s:.2f} times the plan's"
        ],
    }
