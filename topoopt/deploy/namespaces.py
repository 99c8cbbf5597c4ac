"""Network namespaces of this machine, one a host, with a virtual cable for each of the plan's.

Nothing outside of the namespaces is changed. They are removed at the end, also after Ctrl-C and
SIGTERM; what a killed process left is removed by the next run.
"""

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from codesign_base import InputError
from topoopt.base.clean_up import cleaned_up
from topoopt.base.text import ended
from topoopt.deploy.cabling import Cable, End
from topoopt.deploy.deployment import Deployment
from topoopt.deploy.host_files import ports_of
from topoopt.deploy.read_back import CableRow, Files, Port, read_cables, read_host

_NAME = re.compile(r"topoopt-(\d+)-(\d+)-\w+")
_SCRIPT_SECONDS = 60.0
_NETWORK_NAMESPACE = 0x4000_0000
# Below /proc/sys/net/ipv4: whatever the scripts may change.
_SETTINGS = (
    "conf/*/forwarding",
    "conf/*/rp_filter",
    "conf/*/*_redirects",
    "fib_multipath_hash_*",
)


def why_not() -> str | None:
    """Return a sentence why there can be no namespaces here, or None."""
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("ip") is None:
        return "namespaces need root and ip (of iproute2) on Linux"
    name = _names(["probe"])["probe"]
    with cleaned_up(lambda: _remove([name])):
        done = _try(["ip", "netns", "add", name])
    if done.returncode:
        return f"this system makes no network namespaces ({_reason(done)})"
    return None


def has_flower() -> bool:
    """Whether this kernel has the filters and actions of RDMA forwarding."""
    name = _names(["flower"])["flower"]
    rule = (
        "filter add dev lo ingress protocol ip pref 84 flower dst_ip 10.0.0.1 action pedit ex "
        "munge eth dst set 02:00:00:00:00:01 pipe action mirred egress redirect dev lo"
    )
    with cleaned_up(lambda: _remove([name])):
        try:
            _run(["ip", "netns", "add", name])
            _run(["tc", "qdisc", "add", "dev", "lo", "clsact"], space=name)
        except InputError:
            return False
        return _try(["tc", *rule.split()], space=name).returncode == 0


def has_seed() -> bool:
    """Whether hosts of this kernel can divide packets each in its own way (Linux 6.11)."""
    return Path("/proc/sys/net/ipv4/fib_multipath_hash_seed").exists()


@contextmanager
def namespaces(made: Deployment, files: Files) -> Iterator[dict[int, str]]:
    """Make hosts and cables as the files say, with addresses and MTU of the netplan files.

    Parameters
    ----------
    made : Deployment
    files : mapping of str to str

    Yields
    ------
    dict of int to str
        Namespace of each server; the routes are not applied yet.

    Raises
    ------
    InputError
        If ip or tc refuse a command.
    """
    remove_stale()
    named = _names([*map(str, made.servers), "fibres"])
    spaces = {server: named[str(server)] for server in made.servers}
    with cleaned_up(lambda: _remove(named.values())):
        _batch("ip", [f"netns add {name}" for name in named.values()])
        where = {(made.name(end[0]), made.port(end).interface): end for end in made.port_addresses}
        cables = read_cables(files)
        _batch("ip", _links(made, where, cables, spaces, named["fibres"]))
        _join_fibres(where, cables, named["fibres"])
        for server, space in spaces.items():
            _batch("ip", _netplan(made, files, server), space)
        yield spaces


@contextmanager
def state_folder() -> Iterator[Path]:
    """Yield a new directory for what scripts keep until undo; it is removed at the end.

    Its name says which process made it, as those of namespaces do.
    """
    folder = Path(tempfile.gettempdir()) / _names(["state"])["state"]
    with cleaned_up(lambda: shutil.rmtree(folder, ignore_errors=True)):
        folder.mkdir(mode=0o700)
        yield folder


def remove_stale() -> list[str]:
    """Remove namespaces and state of runs that were killed; those that live are left alone.

    Returns
    -------
    list of str
        Namespaces that were removed.
    """
    for folder in Path(tempfile.gettempdir()).glob("topoopt-*-state"):
        match = _NAME.fullmatch(folder.name)
        if match and _began(int(match[1])) != match[2] and folder.stat().st_uid == os.geteuid():
            shutil.rmtree(folder, ignore_errors=True)
    removed = []
    for line in _try(["ip", "netns", "list"]).stdout.splitlines():
        name = line.split()[0] if line.split() else ""
        match = _NAME.fullmatch(name)
        if match and _began(int(match[1])) != match[2]:
            removed.append(name)
    _remove(removed)
    return removed


def pull(made: Deployment, spaces: dict[int, str], cable: Cable, *, back: bool = False) -> None:
    """Pull a cable out, or put it back.

    Parameters
    ----------
    made : Deployment
    spaces : dict of int to str
        As from `namespaces`.
    cable : Cable
        An ordinary one's ports go down; a fibre of one direction carries nothing more, and is not
        put back, since its ports never change.
    back : bool
    """
    if cable.both_ways:
        for end in (cable.source, cable.target):
            words = ["set", made.port(end).interface, "up" if back else "down"]
            _run(["ip", "-n", spaces[end[0]], "link", *words])
    elif not back:
        words = ["tc", "filter", "del", "dev", _fibre(cable.source), "ingress"]
        _run(words, space=_names(["fibres"])["fibres"])


def run_script(space: str, script: str, verb: str, folder: Path) -> None:
    """Run a generated script in a namespace.

    Parameters
    ----------
    space : str
    script : str
        Its text.
    verb : str
        ``apply`` or ``undo``.
    folder : Path
        Where it may keep what undo puts back.

    Raises
    ------
    InputError
        If it fails.
    """
    _run(["sh", "-s", verb], script, {**os.environ, "TOPOOPT_STATE": str(folder)}, space)


def state_of(space: str) -> list[str]:
    """Return rules, routes, fixed neighbours and settings of a namespace, sorted, to compare."""
    shown = "rule show\nroute show table all\nneigh show nud permanent\n"
    lines = _run(["ip", "-4", "-batch", "-"], shown, space=space).splitlines()
    top = Path("/proc/sys/net/ipv4")
    with entered(space):
        found = [path for pattern in _SETTINGS for path in top.glob(pattern)]
        lines += [f"{path} {path.read_text().strip()}" for path in found]
    return sorted(lines)


@contextmanager
def entered(space: str) -> Iterator[None]:
    """Put this thread into a namespace, for programs that it starts and sockets that it opens.

    Sockets that are open stay where they are.

    Parameters
    ----------
    space : str

    Raises
    ------
    OSError
        If there is none.
    """
    library = ctypes.CDLL(None, use_errno=True)

    def enter(descriptor: int) -> None:
        if library.setns(descriptor, _NETWORK_NAMESPACE):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        there = os.open(Path("/run/netns") / space, os.O_RDONLY)
        try:
            enter(there)
        finally:
            os.close(there)
        try:
            yield
        finally:
            enter(home)
    finally:
        os.close(home)


def _links(
    made: Deployment,
    where: Mapping[Port, End],
    cables: Sequence[CableRow],
    spaces: dict[int, str],
    fibres: str,
) -> list[str]:
    """Return commands for a pair of interfaces a cable; one-way fibres meet in a namespace."""
    commands = []
    joined = set()
    for cable in cables:
        for end in cable.ends:
            if end not in where:
                raise InputError(f"cables.csv: the plan uses no port {end[1]} of host {end[0]}")
        if cable.both_ways:
            one, other = (where[end] for end in cable.ends)
            joined |= {one, other}
            commands.append(
                f"link add {_interface(made, one, spaces)} type veth peer name "
                f"{_interface(made, other, spaces)}"
            )
    for split in sorted(set(where.values()) - joined):
        commands.append(
            f"link add {_interface(made, split, spaces)} type veth peer name "
            f"{_fibre(split)} netns {fibres}"
        )
    return commands


def _interface(made: Deployment, end: End, spaces: dict[int, str]) -> str:
    port = made.port(end)
    mac = f" address {port.mac}" if port.mac else ""
    return f"{port.interface} netns {spaces[end[0]]}{mac}"


def _fibre(end: End) -> str:
    return f"f{end[0]}p{end[1]}"


def _join_fibres(where: Mapping[Port, End], cables: Sequence[CableRow], space: str) -> None:
    """Redirect what comes from each split port to the port at the end of its fibre."""
    ways = [(where[cable.ends[0]], where[cable.ends[1]]) for cable in cables if not cable.both_ways]
    if not ways:
        return
    ends = sorted({end for way in ways for end in way})
    _batch("ip", [f"link set {_fibre(end)} mtu 65535 up" for end in ends], space)
    _batch("tc", [f"qdisc add dev {_fibre(end)} clsact" for end in ends], space)
    _batch(
        "tc",
        [
            f"filter add dev {_fibre(one)} ingress protocol all pref 1 u32 match u32 0 0 "
            f"action mirred egress redirect dev {_fibre(other)}"
            for one, other in ways
        ],
        space,
    )


def _netplan(made: Deployment, files: Files, server: int) -> list[str]:
    """Return what netplan would do, as commands."""
    host = read_host(files, made.name(server))
    commands = ["link set lo up", *(f"address add {own}/32 dev lo" for own in host.loopback)]
    for end in ports_of(made, server):
        port = made.port(end)
        if port.forward:
            commands.append(
                f"link add link {port.interface} name {port.forward.interface}"
                f"{f' address {port.forward.mac}' if port.forward.mac else ''} "
                "type macvlan mode private"
            )
    for name, addresses in host.interfaces.items():
        if name in host.macs:
            commands.append(f"link set {name} address {host.macs[name]}")
        commands.append(f"link set {name} mtu {host.mtu[name]} up")
        commands += [f"address add {address} dev {name}" for address in addresses]
    return commands


def _names(parts: Sequence[str]) -> dict[str, str]:
    own = f"topoopt-{os.getpid()}-{_began(os.getpid())}"
    return {part: f"{own}-{part}" for part in parts}


def _began(process: int) -> str | None:
    """Return when a process began, which tells it from a later one of the same number."""
    try:
        # Its name, which may hold anything, is in brackets before the fields.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


def _remove(names: Iterable[str]) -> None:
    """Remove namespaces, and with them the cables in them; those that are not there are none."""
    _try(["ip", "-force", "-batch", "-"], ended(f"netns del {name}" for name in names))


def _batch(program: str, commands: Sequence[str], space: str | None = None) -> None:
    _run([program, "-batch", "-"], ended(commands), space=space)


def _run(
    words: Sequence[str],
    text: str | None = None,
    env: dict[str, str] | None = None,
    space: str | None = None,
) -> str:
    done = _try(words, text, env, space)
    if done.returncode:
        where = "" if space is None else f" in {space}"
        raise InputError(f"{' '.join(words[:6])}{where} fails: {_reason(done)}")
    return done.stdout


def _try(
    words: Sequence[str],
    text: str | None = None,
    env: dict[str, str] | None = None,
    space: str | None = None,
) -> "subprocess.CompletedProcess[str]":
    # In a session of its own, so that Ctrl-C does not stop what cleans up.
    try:
        with nullcontext() if space is None else entered(space):
            return subprocess.run(
                words, input=text, env=env, capture_output=True, text=True, check=False,
                timeout=_SCRIPT_SECONDS, start_new_session=True,
            )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(words, 127, "", str(error))


def _reason(done: "subprocess.CompletedProcess[str]") -> str:
    return " ".join((done.stderr or done.stdout).split())[:200] or f"status {done.returncode}"
