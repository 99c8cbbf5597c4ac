"""Steps of whole networks on one GPU, beside the sum of their operators by `topoopt profile`.

Run by hand where PyTorch finds a GPU and torchvision and transformers are installed:
``python benchmarks/gpu_steps.py``. `docs/profile-file.md` has a table.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

import torch
import torchvision
import transformers

from parallelism.accelerators import get_accelerator
from parallelism.device import RooflineModel, Server
from parallelism.graph import Mode
from parallelism.importers.profiling import profile_operators
from parallelism.importers.torch_capture import capture
from parallelism.profile_file import PROFILE_GPUS, measured_name


class Encoder(torch.nn.Module):
    """BERT-Base without dropout."""

    def __init__(self):
        super().__init__()
        config = transformers.BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        config._attn_implementation = "sdpa"
        self.bert = transformers.BertModel(config, add_pooling_layer=False)

    def forward(self, words):
        return self.bert(input_ids=words).last_hidden_state


class Recommender(torch.nn.Module):
    """Eight tables of a hundred lookups, and dense layers of 1,024."""

    def __init__(self, tables=8, rows=100_000, dim=128, width=1024):
        super().__init__()
        self.tables = torch.nn.ModuleList(
            torch.nn.EmbeddingBag(rows, dim, mode="sum") for _ in range(tables)
        )
        bottom = [(width, width)] * 4 + [(width, dim)]
        top = [(dim * (tables + 1), width)] + [(width, width)] * 5 + [(width, 1)]
        self.bottom, self.top = (
            torch.nn.Sequential(
                *(
                    layer
                    for ends in sizes
                    for layer in (torch.nn.Linear(*ends), torch.nn.ReLU())
                )
            )
            for sizes in (bottom, top)
        )  # fmt: skip

    def forward(self, dense, picked):
        looked_up = [table(picked[:, at]) for at, table in enumerate(self.tables)]
        return self.top(torch.cat([self.bottom(dense), *looked_up], 1))


CASES = {
    "resnet50": (torchvision.models.resnet50, lambda: (torch.randn(64, 3, 224, 224),)),
    "vgg16": (torchvision.models.vgg16, lambda: (torch.randn(64, 3, 224, 224),)),
    "vit-b-16": (torchvision.models.vit_b_16, lambda: (torch.randn(32, 3, 224, 224),)),
    "bert-base": (Encoder, lambda: (torch.randint(30522, (16, 512)),)),
    "dlrm": (Recommender, lambda: (torch.randn(512, 1024), torch.randint(10**5, (512, 8, 100)))),
}


def step_seconds(module, arguments, number=20):
    """Return the median seconds of a forward and backward pass, launched ahead of the GPU."""
    gradient = torch.ones_like(module(*arguments))
    written = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    marks = []
    for _ in range(number):
        for parameter in module.parameters():
            parameter.grad = None
        for _ in range(400):
            written.zero_()
        pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        pair[0].record()
        module(*arguments).backward(gradient)
        pair[1].record()
        torch.cuda.synchronize()
        marks.append(pair)
    return statistics.median(a.elapsed_time(b) for a, b in marks[3:]) * 1e-3


def main():
    """Run all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="h100", help="the accelerator, as plans name it")
    parser.add_argument("--output", "-o", help="write the rows (JSON)")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("gpu_steps: torch finds no GPU")
    found = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": []}
    for name, (make, examples) in CASES.items():
        module, arguments = make().train(), examples()
        for part in module.modules():
            if isinstance(part, torch.nn.Dropout):
                part.p = 0.0
        batch = arguments[0].shape[0]
        graph = capture(module, arguments, name=name)
        # Of tables those of a whole server are timed: a quarter of them has a GPU's samples.
        servers = PROFILE_GPUS if any(op.sparse for op in graph.operators) else 1
        module, arguments = module.to("cuda"), [one.to("cuda") for one in arguments]
        for precision in ("fp32", "tf32"):
            measured = profile_operators(
                graph, servers, batch_per_gpu=batch // servers, device="cuda",
                precision=precision, max_seconds=60,
            )  # fmt: skip
            times = {(row["name"], row["pc_str"]): row for row in measured.document["measurements"]}
            rows = [
                times[measured_name(op), f"1-{PROFILE_GPUS if op.sparse else 1}"]
                for op in graph.operators
            ]
            roofline = RooflineModel(
                Server(get_accelerator(options.device), 1), precision=precision
            )
            by_roofline = [
                roofline.operator_time(graph, index, batch, 1, 1, Mode.OUTPUT)
                for index in range(len(graph.operators))
            ]
            tf32 = precision == "tf32"
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
            torch.compiler.reset()
            one = {
                "name": name, "precision": precision, "operators": len(rows),
                "sum_s": sum(row["fw_time"] + row["bw_time"] for row in rows) * 1e-3,
                "eager_s": step_seconds(module, arguments),
                "compiled_s": step_seconds(torch.compile(module), arguments),
                "roofline_s": sum(ideal.forward + ideal.backward for ideal in by_roofline),
                "by_counts": measured.by_counts,
                "each": [
                    [op.name, row["fw_time"], row["bw_time"], ideal.forward, ideal.backward]
                    for op, row, ideal in zip(graph.operators, rows, by_roofline, strict=True)
                ],
            }  # fmt: skip
            found["rows"].append(one)
            print({key: value for key, value in one.items() if key != "each"}, flush=True)
            if options.output:
                Path(options.output).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
