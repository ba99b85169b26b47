"""A cluster of network namespaces on this machine: hosts on one switch, each link limited in both directions.

All of it lies in namespaces whose names carry this process's id (gy-<pid>-1, ..., gy-<pid>-switch); nothing is added
to the machine's own network. They go with the process, however it ends.
"""
import collections
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

SKIPPED = "SKIPPED: no permission for network namespaces"

# What a remote shell does, for the hosts of one cluster: a host name and shared memory of its own, errors like ssh's.
REMOTE_SHELL = """#!/bin/bash
case $1 in
{cases}
  *) echo "Could not resolve hostname $1: Name or service not known" >&2; exit 255 ;;
esac
shift
exec ip netns exec "$host" unshare -u -m \\
  bash -c 'hostname "$0" && mount -t tmpfs tmpfs /dev/shm && exec bash -c "$1"' "$host" "$*"
"""

Counters = collections.namedtuple("Counters", "sent received")
Traffic = collections.namedtuple("Traffic", "bytes packets")


class NotAllowed(Exception):
    """Network namespaces cannot be had here."""


def run(*command):
    """Returns what the command prints; raises with what it says if it fails."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


def pids_in(name):
    return [int(pid) for pid in run("ip", "netns", "pids", name).split()]


def exists(name):
    return os.path.exists(f"/run/netns/{name}")


def end_all(name):
    """Ends what runs in the namespace, if there is one."""
    deadline = time.monotonic() + 5
    while exists(name) and (pids := pids_in(name)) and time.monotonic() < deadline:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)


def remove(names):
    """Removes the namespaces, and ends what runs in them."""
    for name in filter(exists, names):
        end_all(name)
        run("ip", "netns", "del", name)


def is_refusal(error):
    """Whether an error of making namespaces says that they cannot be had here."""
    refusals = ("not permitted", "ermission denied", "No such file", "not supported", "unknown")
    return any(refusal in str(error) for refusal in refusals)


def at_death(do):
    """Starts a process that does it should this one die. Returns what call_off takes."""
    reading, writing = os.pipe()
    child = os.fork()
    if child != 0:
        os.close(reading)
        os.waitpid(child, 0)
        return writing
    # A session of its own, a child of nobody's, and no descriptor of ours: whoever ends or awaits us passes it over.
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(writing)
    if os.read(reading, 1) == b"":
        try:
            do()
        finally:
            os._exit(1)
    os._exit(0)


def call_off(watcher):
    os.write(watcher, b".")
    os.close(watcher)


class Cluster:
    """`hosts` namespaces, numbered from 1. `rate`: of each link, as tc takes it; None: as fast as the machine goes.
    A context manager."""

    def __init__(self, hosts, rate):
        self.names = [f"gy-{os.getpid()}-{i}" for i in range(1, hosts + 1)]
        self.switch = f"gy-{os.getpid()}-switch"
        self.hosts = range(1, hosts + 1)
        self.folder = tempfile.TemporaryDirectory(prefix="gyre-cluster-")
        self.watcher = at_death(self.remove)
        try:
            self.make(rate)
        except (RuntimeError, FileNotFoundError) as error:
            self.close()
            if is_refusal(error):
                raise NotAllowed(str(error)) from error
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def make(self, rate):
        run("ip", "netns", "add", self.switch)
        run("ip", "-n", self.switch, "link", "add", "bridge", "type", "bridge", "mcast_snooping", "0")
        run("ip", "-n", self.switch, "link", "set", "bridge", "up")
        for i in self.hosts:
            name, port = self.name(i), f"port{i}"
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", self.switch)
            run("ip", "-n", name, "addr", "add", f"{self.address(i)}/24", "dev", "eth0")
            run("ip", "-n", name, "addr", "add", f"{self.address6(i)}/64", "dev", "eth0", "nodad")
            for namespace, device in ((self.switch, port), (name, "eth0")) if rate else ():
                run("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", "256k",
                    "latency", "20ms")
            run("ip", "-n", self.switch, "link", "set", port, "master", "bridge", "up")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            run("ip", "-n", name, "link", "set", "lo", "up")
        self.shell = str(pathlib.Path(self.folder.name, "remote-shell"))
        cases = (f"  {self.address(i)} | {self.address6(i)}) host={self.name(i)} ;;" for i in self.hosts)
        pathlib.Path(self.shell).write_text(REMOTE_SHELL.format(cases="\n".join(cases)))
        os.chmod(self.shell, 0o700)
        run(self.shell, self.address(1), "true")

    def close(self):
        if self.watcher is None:
            return
        self.remove()
        call_off(self.watcher)
        self.watcher = None

    def remove(self):
        remove([*self.names, self.switch])
        self.folder.cleanup()

    def name(self, host):
        return self.names[host - 1]

    @staticmethod
    def address(host):
        return f"10.77.0.{host}"

    @staticmethod
    def address6(host):
        return f"fd77::{host}"

    def on(self, host, *command):
        """The command line that runs the command on the host."""
        return ["ip", "netns", "exec", self.name(host), *command]

    def pids(self, host):
        return pids_in(self.name(host))

    def counters(self, host):
        """What the host's interface has sent and received, headers and all."""
        shown = json.loads(run("ip", "-n", self.name(host), "-json", "-stats", "link", "show", "dev", "eth0"))
        stats = shown[0]["stats64"]
        return Counters(*(Traffic(stats[way]["bytes"], stats[way]["packets"]) for way in ("tx", "rx")))

    def introduce(self):
        """Tells every host the others' link addresses for good. A Linux has room for 1,024 neighbours of all namespaces
        together, less than 33 hosts have that all talk to each other; those that are permanent do not count."""
        links = {host: json.loads(run("ip", "-n", self.name(host), "-json", "link", "show", "dev", "eth0"))[0]["address"]
                 for host in self.hosts}
        for host in self.hosts:
            lines = [f"neigh replace {self.address(other)} lladdr {link} dev eth0 nud permanent\n"
                     for other, link in links.items() if other != host]
            batch = pathlib.Path(self.folder.name, "neighbours")
            batch.write_text("".join(lines))
            run("ip", "-n", self.name(host), "-batch", str(batch))

    def cut(self, host):
        """Pulls the host's cable, at the switch."""
        run("ip", "-n", self.switch, "link", "set", f"port{host}", "down")

    def mend(self, host):
        run("ip", "-n", self.switch, "link", "set", f"port{host}", "up")
