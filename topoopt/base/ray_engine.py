"""Jobs on a Ray cluster; Ray itself is imported only where it is asked for."""

import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from codesign_base import InputError
from topoopt.base.calls import Call, WorkerDied
from topoopt.base.version import installed_version, package_hash


@contextmanager
def ray_workers(
    workers: int, address: str | None, shared: Mapping[str, Any]
) -> Iterator[Callable[[Sequence[Call]], Iterator[tuple[int, Any]]]]:
    """Stay connected to Ray; run lists of jobs as its tasks.

    Parameters
    ----------
    workers : int
        Tasks in flight at a time.
    address : str or None
        ``ray://HOST:PORT`` of a cluster; None starts a Ray of its own on this machine.
    shared : mapping
        Keyword arguments of all jobs besides their own; each machine fetches them once.

    Yields
    ------
    callable
        Runs a list of jobs and yields each result with its place, as they finish: what the
        function returned, or a `WorkerDied`.

    Raises
    ------
    InputError
        If the cluster cannot be reached, lacks topoopt, or has other source code of it.
    """
    # Read when Ray is imported; nobody is told what runs here.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from ray.exceptions import RayError, RayTaskError, WorkerCrashedError

    _connect(address, workers)
    try:
        remote = ray.remote(max_retries=0, num_cpus=1)(_call)
        # A task may run on any machine, so each says which code computed it.
        code = package_hash()
        # A Ray of our own runs here, and may import what this process may.
        path = tuple(sys.path) if address is None else ()
        common = ray.put(pickle.dumps(dict(shared)))

        def run(jobs: Sequence[Call]) -> Iterator[tuple[int, Any]]:
            waiting = list(enumerate(jobs))[::-1]
            running: dict[Any, int] = {}
            while waiting or running:
                while waiting and len(running) < workers:
                    place, job = waiting.pop()
                    payload = pickle.dumps((job.function, dict(job.arguments)))
                    running[remote.remote(payload, common, path, code)] = place
                ready, _ = ray.wait(list(running), num_returns=1)
                place = running.pop(ready[0])
                try:
                    yield place, ray.get(ready[0])
                except WorkerCrashedError:
                    yield place, WorkerDied()
                except RayTaskError as error:
                    cause = getattr(error, "cause", None)
                    if isinstance(cause, ModuleNotFoundError):
                        raise InputError(
                            f"engine {address or 'ray'}: a machine of the cluster cannot import "
                            f"{cause.name}; install topoopt {installed_version()} on all of them"
                        ) from None
                    raise cause if isinstance(cause, Exception) else error from None
                except RayError as error:
                    reason = " ".join(str(error).split())[-200:]
                    raise InputError(
                        f"engine {address or 'ray'}: a machine of the cluster cannot run the job "
                        f"({reason}); install topoopt {installed_version()} on all of them"
                    ) from None

        yield run
    finally:
        ray.shutdown()


def _connect(address: str | None, workers: int) -> None:
    import ray

    if ray.is_initialized():
        raise InputError("engine ray: this process is connected to a Ray already; disconnect first")
    quiet = {"log_to_driver": False, "logging_level": "error"}
    if address is None:
        ray.init(address="local", num_cpus=workers, include_dashboard=False, **quiet)
        return
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, TimeoutError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"engine {address}: cannot be reached ({reason[:200]}); give the address of a running "
            "Ray cluster's client server"
        ) from None


def _call(payload: bytes, shared: bytes, path: Sequence[str], code: str) -> Any:
    sys.path += [place for place in path if place not in sys.path]
    if package_hash() != code:
        raise InputError(
            "engine ray: a machine of the cluster has other source code of topoopt, so results "
            "could differ; install the same on all of them"
        )
    function, arguments = pickle.loads(payload)
    return function(**pickle.loads(shared), **arguments)
