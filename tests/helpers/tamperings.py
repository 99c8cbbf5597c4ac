"""Changes of a small plan's document that make it wrong, each with the checks that may notice."""

TAMPERINGS = []


def tampering(change):
    """Collect a function that changes a plan's document and names the checks that may notice."""
    TAMPERINGS.append(change)
    return change


@tampering
def link_above_the_degree(d):
    d["links"][0]["cables"] += 1
    d["links"][0]["capacity_bytes_per_s"] *= 2
    return {"ports"}


@tampering
def capacity_raised(d):
    d["links"][3]["capacity_bytes_per_s"] *= 1.0000001
    return {"ports"}


@tampering
def link_latency_lowered(d):
    d["links"][0]["latency_s"] /= 2
    return {"ports", "routes"}


@tampering
def link_removed(d):
    del d["links"][2]
    return {"structure", "routes", "rings"}


@tampering
def link_stands_twice(d):
    d["links"].insert(1, dict(d["links"][0]))
    return {"structure"}


@tampering
def link_to_nowhere(d):
    d["links"][0]["target"] = 9
    return {"structure"}


@tampering
def degree_raised(d):
    d["cluster"]["degree"] += 1
    return {"ports"}


@tampering
def degree_lowered(d):
    d["cluster"]["degree"] -= 1
    d["degree_allreduce"] -= 1
    return {"ports"}


@tampering
def ring_of_two_cycles(d):
    ring = d["rings"][0]
    ring["generator"], ring["order"] = 2, [0, 2, 1, 3]
    return {"structure", "rings"}


@tampering
def ring_order_swapped(d):
    order = d["rings"][0]["order"]
    order[1], order[2] = order[2], order[1]
    return {"rings"}


@tampering
def ring_visits_a_server_twice(d):
    d["rings"][0]["order"][2] = d["rings"][0]["order"][0]
    return {"structure", "rings"}


@tampering
def ring_over_missing_links(d):
    # Two wired pairs make a ring of two; 0 and 2 are not neighbours in the plan's wiring.
    d["rings"].append({"generator": 1, "order": [0, 2]})
    return {"rings"}


@tampering
def ring_without_cables_of_its_own(d):
    d["rings"].append(dict(d["rings"][0]))
    return {"rings"}


@tampering
def ring_removed(d):
    del d["rings"][0]
    return {"structure", "rings", "times", "routes"}


@tampering
def route_over_a_missing_link(d):
    d["routes"]["links"][0] = len(d["links"])
    return {"structure"}


@tampering
def route_weight_changed(d):
    d["routes"]["weight_values"][0] *= 0.99
    return {"routes"}


@tampering
def route_does_not_conserve_flow(d):
    d["routes"]["links"][0] = (d["routes"]["links"][0] + 1) % len(d["links"])
    return {"routes"}


@tampering
def route_dropped(d):
    offsets = d["routes"]["offsets"]
    removed = offsets[2] - offsets[1]
    del (
        d["routes"]["links"][offsets[1] : offsets[2]],
        d["routes"]["weights"][offsets[1] : offsets[2]],
    )
    d["routes"]["offsets"] = offsets[:2] + [o - removed for o in offsets[2:]]
    return {"routes"}


@tampering
def route_latency_changed(d):
    d["routes"]["latency_s"][1] *= 2
    return {"routes"}


@tampering
def route_other_than_the_stated_routing(d):
    # A unit flow still, but over one of the two equal paths instead of both.
    ends = [(link["source"], link["target"]) for link in d["links"]]
    row, routes = 0 * 4 + 2, d["routes"]
    begin, end = routes["offsets"][row], routes["offsets"][row + 1]
    assert end - begin == 4
    whole = routes["weight_values"].index(1.0)
    routes["links"][begin:end] = [ends.index((0, 1)), ends.index((1, 2))]
    routes["weights"][begin:end] = [whole, whole]
    routes["offsets"] = [o - 2 if i > row else o for i, o in enumerate(routes["offsets"])]
    return {"routes"}


@tampering
def iteration_time_changed(d):
    d["iteration_time_s"] *= 0.9999
    return {"times"}


@tampering
def compute_time_changed(d):
    d["compute_time_s"] *= 1.001
    return {"times"}


@tampering
def exposed_time_changed(d):
    d["exposed_communication_s"] *= 0.5
    return {"times"}


@tampering
def operator_time_changed(d):
    d["parallelization"]["operators"][2]["backward_s"] *= 0.5
    return {"structure", "parallelization"}


@tampering
def lower_bound_changed(d):
    d["lower_bound_s"] *= 1.01
    return {"bounds"}


@tampering
def strategy_bound_changed(d):
    d["parallelization_bound"]["terms_s"]["hop"] *= 1.01
    return {"bounds"}


@tampering
def gap_changed(d):
    d["gap"] = 0.0
    return {"bounds"}


@tampering
def weight_moved(d):
    first = next(iter(d["bound"]["weights"]))
    d["bound"]["weights"][first] *= 0.5
    return {"bounds"}


@tampering
def gap_part_moved(d):
    d["gap_parts"][0]["seconds"] += 1e-3
    return {"bounds"}


@tampering
def gap_part_explained_otherwise(d):
    d["gap_parts"][3]["how"] = "guessed"
    return {"bounds"}


@tampering
def two_parts_on_one_server(d):
    wide = next(op for op in d["parallelization"]["operators"] if op["sample"] == 4)
    wide["servers"][1] = wide["servers"][0]
    return {"structure", "parallelization"}


@tampering
def server_that_does_not_exist(d):
    d["parallelization"]["operators"][0]["servers"][0] = 4
    return {"structure", "parallelization"}


@tampering
def sample_degree_does_not_divide_the_batch(d):
    (
        d["parallelization"]["operators"][0]["sample"],
        d["parallelization"]["operators"][0]["servers"],
    ) = 3, [0, 1, 2]
    return {"structure", "parallelization"}


@tampering
def parameter_degree_does_not_divide(d):
    op = d["parallelization"]["operators"][0]
    op["sample"], op["parameter"], op["servers"] = 1, 3, [0, 1, 2]
    return {"structure", "parallelization"}


@tampering
def operator_missing(d):
    del d["parallelization"]["operators"][3]
    return {"structure"}


@tampering
def operators_exchanged(d):
    d["parallelization"]["operators"][0], d["parallelization"]["operators"][1] = (
        d["parallelization"]["operators"][1],
        d["parallelization"]["operators"][0],
    )
    return {"structure"}


@tampering
def origin_is_another_strategy(d):
    d["origin"] = "data-parallel"
    return {"structure", "parallelization"}


@tampering
def origin_is_the_plan_itself(d):
    d["origin"] = "plan"
    return {"parallelization"}


@tampering
def origin_is_no_word_of_ours(d):
    next(iter(d["baselines"].values()))["origin"] = "elsewhere"
    return {"baselines"}


@tampering
def table_moved(d):
    table = next(op for op in d["parallelization"]["operators"] if op["sample"] == 1)
    table["servers"] = [(table["servers"][0] + 1) % 4]
    d["origin"] = "search"
    return {"structure", "parallelization"}


@tampering
def global_batch_changed(d):
    d["global_batch"] *= 2
    return {"structure", "parallelization"}


@tampering
def memory_lowered(d):
    d["job"]["server"]["accelerator"]["memory_bytes"] = d["memory_per_gpu_bytes"] * 0.99
    return {"structure", "parallelization"}


@tampering
def memory_use_changed(d):
    d["memory_per_gpu_bytes"] *= 0.5
    return {"structure", "parallelization"}


@tampering
def faster_accelerator(d):
    d["job"]["server"]["accelerator"]["memory_bandwidth"] *= 2
    return {"structure", "parallelization"}


@tampering
def compute_model_changed(d):
    d["job"]["compute"]["efficiency"] = 0.7
    return {"parallelization", "question"}


@tampering
def compute_record_changed(d):
    d["job"]["compute"]["gpus"] = 8
    return {"question"}


@tampering
def bandwidth_raised(d):
    d["cluster"]["bandwidth_bytes_per_s"] *= 2
    return {"ports"}


@tampering
def traffic_changed(d):
    d["transfer_bytes"] *= 0.5
    return {"routes"}


@tampering
def bandwidth_tax_changed(d):
    d["bandwidth_tax"] = 1.0
    return {"times"}


@tampering
def cost_changed(d):
    d["cost_usd"] *= 0.9
    return {"costs"}


@tampering
def cost_removed(d):
    d["cost_usd"] = None
    return {"costs"}


@tampering
def baseline_time_changed(d):
    d["baselines"]["fat-tree"]["iteration_time_s"] *= 1.5
    return {"baselines"}


@tampering
def baseline_cost_changed(d):
    d["baselines"]["ideal-switch"]["cost_usd"] += 1
    return {"baselines"}


@tampering
def baseline_operator_time_changed(d):
    d["baselines"]["expander"]["parallelization"]["operators"][0]["forward_s"] *= 2
    return {"baselines"}


@tampering
def baseline_unknown(d):
    d["baselines"]["sphere"] = d["baselines"].pop("expander")
    return {"search"}


@tampering
def baseline_of_another_wiring(d):
    d["baselines"]["leaf-spine"] = d["baselines"].pop("expander")
    return {"search"}


@tampering
def reconfiguration_missing(d):
    d["baselines"]["ocs-reconfig"]["reconfiguration"] = None
    return {"baselines"}


@tampering
def reconfiguration_of_a_fixed_fabric(d):
    stored = d["baselines"]["sip-ml"]["reconfiguration"]
    d["baselines"]["fat-tree"]["reconfiguration"] = stored
    return {"baselines"}


@tampering
def reconfiguration_with_a_window_where_there_is_none(d):
    d["baselines"]["sip-ml"]["reconfiguration"]["window_s"] = 0.05
    return {"baselines"}


@tampering
def reconfiguration_slower(d):
    d["baselines"]["sip-ml"]["reconfiguration"]["delay_s"] *= 2
    return {"baselines"}


@tampering
def start_time_changed(d):
    d["named_strategies_s"]["data-parallel"] *= 2
    return {"starts"}


@tampering
def start_said_not_to_fit(d):
    d["named_strategies_s"]["hybrid"] = None
    return {"starts"}


@tampering
def start_unknown(d):
    d["named_strategies_s"]["pipeline"] = 1.0
    return {"starts"}


@tampering
def model_changed(d):
    d["job"]["model"]["operators"][-2]["parameters"] *= 2
    return {"structure", "parallelization"}


@tampering
def optimizer_unknown(d):
    d["job"]["optimizer"] = "lion"
    return {"structure"}


@tampering
def fabric_model_of_another_version(d):
    d["fabric_model"] = "packets"
    return {"structure", "parallelization"}


@tampering
def routing_renamed(d):
    d["routing"] = "shortest"
    return {"structure"}


@tampering
def other_steps_than_its_budget(d):
    d["search"]["options"]["steps"] += 1
    return {"search"}
