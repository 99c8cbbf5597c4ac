"""Records that keep their hash: equal ones have the same, and other processes another."""

import copy
import pickle
from dataclasses import dataclass, replace

from codesign_base.hashed_once import hashed_once


@hashed_once
@dataclass(frozen=True)
class Record:
    name: str
    number: int = 0


def test_the_hash_is_that_of_the_fields_and_is_not_passed_on() -> None:
    one = Record("a", 1)
    assert hash(one) == hash(one) == hash(Record("a", 1)) == hash(("a", 1))
    assert hash(replace(one, number=2)) == hash(("a", 2))
    assert one == Record("a", 1)
    assert {one: "found"}[Record("a", 1)] == "found"
    assert len(one.__dict__) > len(pickle.loads(pickle.dumps(one)).__dict__) == 2
    assert copy.copy(one) == copy.deepcopy(one) == one
