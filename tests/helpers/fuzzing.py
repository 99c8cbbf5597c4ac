"""Mutated files and command lines, and what may come of each: success, or one clear sentence."""

import contextlib
import io
import json
import random
import warnings
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path

from fbuf_oracle import oracle_write, small_document
from tampering import nodes, replaced

from codesign_base import InputError

# Off, everything is read as it was written.
CHANGES = True
# What numbers, texts and lists of any kind are replaced by.
ODD = (
    None, True, False, 0, 1, -1, 2, 3, 7, 255, 4097, 10**6, 2**31 - 1, 2**31, 2**32, 2**53 + 1,
    2**62, 2**63 - 1, 2**63, 2**64, 10**19, 10**30, -(2**63), -(10**19), 0.0, -0.0, 0.5, -1.5,
    1e-320, 1e-12, 1e12, 1e18, 1e300, 1.7e308, -1e300, "", " ", "x", "0", "-1", "1e999", "NaN",
    "inf", "100Gbps", "1us", "../..", "/", "\x00", "\u2028", "a\nb", "x" * 300, "\U0001f680",
    [], {}, [[]], [0], ["x"], {"x": 1}, [None], [1e308, 1e308], {"": {}},
)  # fmt: skip
_NUMBERS = [value for value in ODD if isinstance(value, int | float)]


def mutated(document: object, rng: random.Random) -> object:
    """Return a JSON document after one to three changes."""
    if not CHANGES:
        return document
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        path, node = rng.choice(list(nodes(document)))
        document = replaced(document, path, _other(node, rng))
    return document


def _other(node: object, rng: random.Random) -> object:
    if isinstance(node, dict) and node and rng.random() < 0.8:
        key = rng.choice(list(node))
        kept = {k: v for k, v in node.items() if k != key}
        return rng.choice((kept, {**node, key + "2": node[key]}, {**node, key: rng.choice(ODD)}))
    if isinstance(node, list) and node and rng.random() < 0.8:
        place = rng.randrange(len(node))
        more = [*node[:place], node[place], *node[place:]]
        shuffled = rng.sample(node, len(node))
        return rng.choice((node[:place] + node[place + 1 :], more, shuffled, node * 40))
    if isinstance(node, int | float) and rng.random() < 0.7:
        with contextlib.suppress(OverflowError):
            near = (node + 1, node - 1, -node, node * 2, node * 1000, node / 3, float(node))
            return rng.choice((*near, rng.choice(_NUMBERS)))
    if isinstance(node, str) and node and rng.random() < 0.5:
        return damaged(node.encode(), rng).decode(errors="replace")
    return rng.choice(ODD)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return bytes with some flipped, dropped, inserted, repeated or overwritten."""
    if not CHANGES:
        return data
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(changed) + 1)
        length = rng.choice((1, 1, 2, 4, 8, 40))
        kind = rng.randrange(6)
        if kind == 0 and changed:
            changed[at % len(changed)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del changed[at : at + length]
        elif kind == 2:
            changed[at:at] = rng.randbytes(length)
        elif kind == 3:
            changed[at:at] = changed[at : at + length]
        elif kind == 4:
            word = rng.choice((0, 1, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1))
            changed[at : at + 4] = word.to_bytes(4, "little")
        else:
            del changed[at:]
    return bytes(changed)


def json_text(document: object, rng: random.Random) -> str:
    """Return a mutated document as text, which may itself be damaged."""
    if rng.random() < 0.1:
        return damaged(json.dumps(document).encode(), rng).decode(errors="replace")
    return json.dumps(mutated(document, rng))


def written(folder: Path, name: str, content: str | bytes) -> Path:
    """Write a file of a case."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode(errors="replace"))
    return path


# -- kinds of input ---------------------------------------------------------------------------

MODEL = {
    "name": "towers", "batch_per_gpu": 16, "element_bytes": 4,
    "inputs": {"profile": [32], "photo": [3, 16, 16]},
    "operators": [
        {"name": "history", "kind": "embedding", "rows": 1000, "dim": 16, "bag": 4},
        {"name": "user", "kind": "dense", "inputs": ["profile"], "out_features": 16},
        {"name": "conv", "kind": "conv2d", "inputs": ["photo"], "out_channels": 8, "kernel": 3,
         "padding": 1},
        {"name": "pool", "kind": "pool", "inputs": ["conv"], "kernel": 4, "stride": 4},
        {"name": "flat", "kind": "flatten", "inputs": ["pool"]},
        {"name": "item", "kind": "dense", "inputs": ["flat"], "out_features": 16},
        {"name": "all", "kind": "concat", "inputs": ["history", "user", "item"]},
        {"name": "cross", "kind": "custom", "inputs": ["all"], "output_shape": [48],
         "forward_flops": 4608, "backward_flops": 9216, "forward_bytes": 384,
         "backward_bytes": 768, "parameters": 2304,
         "splits": [{"mode": "output", "extent": 48}]},
        {"name": "score", "kind": "dense", "inputs": ["cross"], "out_features": 1},
    ],
}  # fmt: skip

CONFIGS = (
    {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256,
        "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False,
    },
    {
        "model_type": "mixtral", "hidden_size": 256, "intermediate_size": 512,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
        "vocab_size": 1000, "max_position_embeddings": 512, "num_local_experts": 4,
        "num_experts_per_tok": 2, "hidden_act": "silu", "tie_word_embeddings": False,
    },
    {
        "model_type": "gpt2", "n_embd": 256, "n_layer": 2, "n_head": 4, "n_positions": 256,
        "vocab_size": 1000,
    },
    {
        "model_type": "bert", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 512, "vocab_size": 1000, "max_position_embeddings": 128,
        "type_vocab_size": 2,
    },
)  # fmt: skip


def model_files(rng: random.Random, folder: Path) -> None:
    """Model files, and a first strategy of what they hold."""
    import topoopt as to
    from parallelism.model_file import load_model
    from parallelism.search.named import named_strategies
    from parallelism.search.space import StrategySpace

    suffix = rng.choice((".json", ".yaml"))
    graph = load_model(written(folder, "model" + suffix, json_text(MODEL, rng)))
    family = to.Job(graph).family(2)
    space = StrategySpace(graph, 2, family.batch)
    for strategy in named_strategies(space).values():
        family.memory(space.intern(strategy))
        family.build(space.intern(strategy))


def configs(rng: random.Random, folder: Path) -> None:
    """Hugging Face configurations, and the layouts of what they describe."""
    import topoopt as to
    from parallelism.transformers.load import load_transformer
    from topoopt.problem.job import nvlink_server

    text = json_text(rng.choice(CONFIGS), rng)
    model = load_transformer(str(written(folder, "config.json", text)))
    assert model.parameters >= model.active_parameters > 0
    job = to.Job(model, global_batch=8, server=nvlink_server("h100", 2))
    family = job.family(2)
    for layout in rng.sample(family.layouts(), min(2, len(family.layouts()))):
        family.uses(layout)
        family.estimate(family.placements(layout)[-1], 50e9)


@cache
def _network_document() -> dict:
    import networkx as nx
    import numpy as np

    from topoopt.topology.fabrics import random_regular
    from topoopt.topology.network_json import network_graph

    network = random_regular(6, 3, 12.5e9, 1e-6, np.random.default_rng(0))[0]
    return json.loads(json.dumps(nx.node_link_data(network_graph(network), edges="edges")))


@cache
def _network_graphml(folder: Path) -> bytes:
    from topoopt.topology.fabrics import fat_tree
    from topoopt.topology.graphml import save_graphml

    path = folder / "original.graphml"
    save_graphml(fat_tree(4, 12.5e9, 1e-6)[0], path)
    return path.read_bytes()


def networks(rng: random.Random, folder: Path) -> None:
    """Network files as JSON, and all shortest paths over them."""
    from routing.paths import ecmp_routes
    from topoopt.topology.network_file import load_network

    text = json_text(_network_document(), rng)
    ecmp_routes(load_network(written(folder, "network.json", text)))


def graphml(rng: random.Random, folder: Path) -> None:
    """Network files as GraphML."""
    from routing.paths import ecmp_routes
    from topoopt.topology.network_file import load_network

    data = _network_graphml(folder)
    if CHANGES and rng.random() < 0.6:
        text = data.decode()
        # Another number or word between two tags.
        words = [
            at for at, letter in enumerate(text) if letter == ">" and text[at + 1] not in "<\n"
        ]
        at = rng.choice(words) + 1
        odd = str(rng.choice(ODD)).replace("<", "")
        data = (text[:at] + odd + text[text.index("<", at) :]).encode(errors="replace")
    else:
        data = damaged(data, rng)
    ecmp_routes(load_network(written(folder, "network.graphml", data)))


def prices(rng: random.Random, folder: Path) -> None:
    """Price tables, and what fabrics cost by them."""
    from topoopt.problem.prices import (
        default_prices,
        direct_connect_cost,
        equal_cost_fat_tree_bandwidth,
        load_prices,
    )

    table = load_prices(written(folder, "prices.json", json_text(default_prices().to_dict(), rng)))
    cost = direct_connect_cost(16, 4, 12.5e9, table)
    equal_cost_fat_tree_bandwidth(cost, 16, table)


JOBS = {
    "jobs": [
        {"model": "bloom", "replicas": 2},
        {"name": "mine", "parameters": 13_000_000_000, "tensor": 4, "pipeline": 2, "replicas": 2,
         "compute_time": "400ms", "placement": [["0:0-7"], ["1:0-7"]]},
        {"name": "small", "parameters": 1_000_000, "replicas": 3, "compute_time": "1ms"},
    ]
}  # fmt: skip


def clos_jobs(rng: random.Random, folder: Path) -> None:
    """Jobs on a Clos fabric."""
    import numpy as np

    from routing.clos.fabric import Clos
    from topoopt.clos.jobs_file import load_jobs

    clos = Clos(8, 4, np.ones((8, 4)), np.ones((4, 8)), 16)
    suffix = rng.choice((".json", ".yaml"))
    load_jobs(written(folder, "jobs" + suffix, json_text(JOBS, rng)), clos, 3)


@cache
def _comparison() -> dict:
    from small_plans import small_mlp

    import topoopt as to
    from topoopt.problem.options import SearchOptions

    found = to.compare(
        to.Job(small_mlp()), to.Cluster(4, 2, "100Gbps"), SearchOptions(steps=10),
        fabrics=("ideal-switch", "expander"),
    )  # fmt: skip
    return json.loads(json.dumps(asdict(found)))


def comparisons(rng: random.Random, folder: Path) -> None:
    """Comparisons, and reports of them."""
    from topoopt.codesign.comparison import parse_comparison
    from topoopt.report.write import render_report

    text = json_text(_comparison(), rng)
    found = parse_comparison(text)
    if rng.random() < 0.3:
        render_report(found)


def traffic(rng: random.Random, folder: Path) -> None:
    """Traffic files, and a topology for each."""
    import numpy as np

    from topoopt.formats.traffic import load_traffic
    from topoopt.topology.finder import find_topology

    arrays = {
        "servers": np.int64(4),
        "transfer_bytes": np.where(np.eye(4, dtype=bool), 0.0, 1e6),
        "group_bytes": np.array([1e8, 2e6]),
        "group_offsets": np.array([0, 4, 6]),
        "group_members": np.array([0, 1, 2, 3, 1, 3]),
        "schema_version": np.int64(1),
    }
    for _ in range(rng.choice((0, 1, 1, 2)) if CHANGES else 0):
        name = rng.choice(list(arrays))
        array = np.array(arrays[name])
        odd = rng.choice(_NUMBERS)
        with contextlib.suppress(OverflowError, ValueError, RuntimeWarning):
            if rng.random() < 0.7 and array.size:
                array.flat[rng.randrange(array.size)] = odd
            else:
                array = rng.choice((np.array(odd), array.ravel()[:1], array.astype("f4")))
        arrays[name] = array
    if CHANGES and rng.random() < 0.1:
        del arrays[rng.choice(list(arrays))]
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    data = buffer.getvalue()
    if rng.random() < 0.2:
        data = damaged(data, rng)
    found = load_traffic(written(folder, "traffic.npz", data))
    find_topology(found, rng.choice((1, 2, 4)), 12.5e9)


@cache
def _fbuf_files() -> tuple[bytes, ...]:
    from small_plans import shared_plan

    from topoopt.formats.fbuf_plan import plan_fbuf
    from topoopt.formats.fbuf_write import write_fbuf

    return oracle_write(small_document()), write_fbuf(plan_fbuf(shared_plan()))


def fbuf(rng: random.Random, folder: Path) -> None:
    """Task-graph files, simulated on their own networks or a switch."""
    from topoopt.fabric.simulation import simulate
    from topoopt.studies.replay import replay_fabric
    from topoopt.studies.workload import load_workload

    path = written(folder, "tasks.fbuf", damaged(rng.choice(_fbuf_files()), rng))
    workload = load_workload(path)
    replay = replay_fabric(workload, rng.choice(("own", "ideal-switch")))
    simulate(replay.fabric, workload.tasks, model=rng.choice(("fluid", "fluid", "packet")))


def _plan(rng: random.Random, document: dict) -> None:
    from topoopt.plan.answer import short_summary
    from topoopt.plan.plan import parse_plan
    from topoopt.plan.summary import plan_summary
    from topoopt.plan.verify import verify_plan

    plan = parse_plan(json_text(document, rng))
    # Whatever a plan holds, its verification ends in a verdict.
    try:
        verdict = verify_plan(plan)
    except InputError as error:
        raise AssertionError(f"verification raised {error}") from error
    assert all("\n" not in failure for failure in verdict.failures)
    if verdict.ok:
        plan_summary(plan)
        short_summary(plan)


@cache
def _documents(kind: str) -> tuple[dict, ...]:
    import small_plans

    names = {
        "operators": ("shared_bidirectional_plan",),
        "layouts": ("shared_bidirectional_layout_plan", "shared_confirmed_layout_plan"),
    }[kind]
    return tuple(json.loads(getattr(small_plans, name)().to_json()) for name in names)


def operator_plans(rng: random.Random, folder: Path) -> None:
    """Plan files of operators, verified."""
    _plan(rng, rng.choice(_documents("operators")))


def layout_plans(rng: random.Random, folder: Path) -> None:
    """Plan files of layouts, verified."""
    _plan(rng, rng.choice(_documents("layouts")))


@cache
def _deployment() -> tuple[object, dict[str, object], dict[str, str]]:
    """Return a plan, the document of a site for it, and the files that it is deployed as."""
    from sites import full_site
    from small_plans import shared_plan

    from topoopt.deploy.deployment import deployment
    from topoopt.deploy.files import deploy_files

    site = full_site(4, 2, panels=1)
    made = deployment(shared_plan(), site)
    return made, site.model_dump(mode="json", exclude_none=True), deploy_files(made)


def sites(rng: random.Random, folder: Path) -> None:
    """Site files, what they make of a plan, and a check of it."""
    from topoopt.deploy.check import check_files
    from topoopt.deploy.deployment import deployment
    from topoopt.deploy.files import deploy_files
    from topoopt.deploy.site import load_site

    made, document, _ = _deployment()
    made = deployment(made.plan, load_site(written(folder, "s.yaml", json_text(document, rng))))
    assert check_files(made, deploy_files(made)).faults == ()


def deployed_files(rng: random.Random, folder: Path) -> None:
    """Damaged files of a deployment: faults are sentences."""
    from topoopt.deploy.check import check_files

    made, _, files = _deployment()
    checked = [path for path in files if path.endswith((".csv", ".sh", ".yaml"))]
    path = rng.choice([path for path in checked if not path.startswith(("job/", "labels", "net"))])
    text = damaged(files[path].encode(), rng).decode(errors="replace")
    if faults := check_files(made, {**files, path: text}).faults:
        raise InputError(faults[0])


def neighbours(rng: random.Random, folder: Path) -> None:
    """Tables of who hears whom, and what of them is wrong."""
    from topoopt.deploy.verify_cabling import CABLING_COLUMNS, read_neighbours, verify_cabling

    made, _, _ = _deployment()
    rows = []
    told: dict[str, object] = {}
    for end, other in made.cabling.leads_to.items():
        ends = [(made.name(e[0]), made.port(e).interface) for e in (other, end)]
        rows.append(",".join((*ends[0], *ends[1])))
        port = {"id": {"type": "ifname", "value": ends[1][1]}, "descr": ends[1][1]}
        entry = {"chassis": {ends[1][0]: {}}, "port": port}
        blocks = told.setdefault(ends[0][0], {"lldp": {"interface": []}})
        blocks["lldp"]["interface"].append({ends[0][1]: entry})
    if rng.random() < 0.5:
        path = written(folder, "n.json", json_text(told, rng))
    else:
        text = "\n".join([",".join(CABLING_COLUMNS), *rows]) + "\n"
        path = written(folder, "n.csv", damaged(text.encode(), rng))
    verify_cabling(made, *read_neighbours(path, made))


KINDS: dict[str, Callable[[random.Random, Path], None]] = {
    "model-files": model_files,
    "configs": configs,
    "networks": networks,
    "graphml": graphml,
    "prices": prices,
    "clos-jobs": clos_jobs,
    "comparisons": comparisons,
    "traffic": traffic,
    "fbuf": fbuf,
    "operator-plans": operator_plans,
    "layout-plans": layout_plans,
    "sites": sites,
    "deployed-files": deployed_files,
    "neighbours": neighbours,
}


def failure(kind: str, case: int, folder: Path) -> str | None:
    """Run one case; return what is wrong with how it ended, None if nothing is."""
    rng = random.Random(f"{kind} {case}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            KINDS[kind](rng, folder)
    except InputError as error:
        said = str(error)
        if not said.strip() or len(said.splitlines()) > 1 or len(said) > 1000:
            return f"{kind} {case}: not one sentence: {said[:300]!r}"
    except Exception as error:
        import traceback

        last = traceback.extract_tb(error.__traceback__)[-1]
        return (
            f"{kind} {case}: {type(error).__name__}: {str(error)[:200]} "
            f"({Path(last.filename).name}:{last.lineno})"
        )
    left = [path.name for path in folder.iterdir() if path.name.startswith(".topoopt-")]
    return f"{kind} {case}: left {left}" if left else None
