"""`topoopt models`: the workloads that come with the program."""

from dataclasses import asdict

from topoopt.cli import common


def models_command(as_json: common.AsJson = False) -> None:
    """List the workloads with parameters, FLOPs and bytes per sample."""
    from parallelism.models import list_models
    from topoopt.summary import table_lines
    from topoopt.units import format_bytes, format_count, format_flops

    models = list_models()
    if as_json:
        common.print_json([asdict(model) for model in models])
        return
    rows: list[tuple[str, ...]] = [
        ("model", "operators", "parameters", "forward/sample", "activations/sample", "batch/GPU")
    ]
    rows += [
        (
            m.name,
            str(m.operators),
            format_count(m.parameters),
            format_flops(m.forward_flops_per_sample),
            format_bytes(m.activation_bytes_per_sample),
            str(m.batch_per_gpu),
        )
        for m in models
    ]
    print("\n".join(table_lines(rows)))
