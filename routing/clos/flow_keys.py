"""What tells persistent flows apart, and how sets of them are put together."""

from typing import Any

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from codesign_base.arrays import Ints
from routing.clos.flows import ClosFlows

_BITS = 21  # of a NIC number in a flow's key


def keys_of(flows: ClosFlows) -> Ints:
    """Return a number for each flow that no other job or pair of NICs has.

    Raises InputError if flows have no NICs, or a number is too large for the key.
    """
    if flows.source_nic is None or flows.target_nic is None:
        raise InputError("flows have no NICs; the control loop needs source_nic and target_nic")
    for name, array in (("job", flows.job), ("NIC", flows.source_nic), ("NIC", flows.target_nic)):
        if array.size and array.max() >= 2**_BITS:
            raise InputError(f"{name} {array.max()} is too large; number them below {2**_BITS}")
    keys: Ints = (flows.job << (2 * _BITS)) | (flows.source_nic << _BITS) | flows.target_nic
    return keys


def joined_flows(a: ClosFlows, b: ClosFlows, order: Ints) -> ClosFlows:
    """Return two sets of flows as one, in the given order of their concatenation."""
    pairs = zip(_columns(a), _columns(b), strict=True)
    return ClosFlows.of(*(np.concatenate(pair)[order] for pair in pairs))


def with_own_weights(flows: ClosFlows) -> ClosFlows:
    """Return flows with weights of their own: the job's largest flow may be gone."""
    return ClosFlows.of(*_columns(flows))


def _columns(flows: ClosFlows) -> tuple[npt.NDArray[Any], ...]:
    assert flows.source_nic is not None and flows.target_nic is not None
    return (
        flows.source_tor, flows.target_tor, flows.job, flows.bytes_,
        flows.source_nic, flows.target_nic,
    )  # fmt: skip
