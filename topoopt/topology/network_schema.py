"""What a network file may hold; apart, because only reading one needs pydantic."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from parallelism.record_fields import STRICT

NodeId = int | str


class GraphSpec(BaseModel):
    """The network as a whole."""

    model_config = STRICT
    name: Annotated[str, Field(min_length=1)] | None = None
    hosts: int | None = None
    switches: int | None = None


class NodeSpec(BaseModel):
    """A host or a switch."""

    model_config = STRICT
    id: NodeId
    kind: Literal["host", "switch"] = "host"


class EdgeSpec(BaseModel):
    """Parallel cables one way; ``key`` is what networkx numbers parallel edges with."""

    model_config = STRICT
    source: NodeId
    target: NodeId
    capacity_gbps: Annotated[float, Field(ge=1e-9, le=1e15)]
    latency_ns: Annotated[float, Field(ge=0, le=3.6e12)]
    cables: Annotated[int, Field(ge=1, le=10**6)] = 1
    key: NodeId | None = None


class NetworkFile(BaseModel):
    """The document."""

    model_config = STRICT
    directed: Literal[True] = True
    multigraph: bool = False
    graph: GraphSpec = GraphSpec()
    nodes: list[NodeSpec]
    edges: list[EdgeSpec]
