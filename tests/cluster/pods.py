"""Pods of an MPIJob as namespaces of this machine: each with a network, host name, hosts file, process space and 64 MiB
of /dev/shm of its own; workers run the real sshd on port 2222 with the image's configuration (k8s/images), and the
files that the operator gives a launcher have its very format. Must be root.

The last host of the cluster is the launcher's.
"""
import contextlib
import pathlib
import shutil
import subprocess
import time

from namespaces import Cluster, end_all

SSHD = "/usr/sbin/sshd"
IMAGES = pathlib.Path(__file__).resolve().parents[2] / "k8s" / "images"
JOB = "gyre"

# $1 host name, $2 hosts file, $3 size of /dev/shm, $4 ssh's configuration, then the command. /run/sshd is the image's.
# What this machine's root has its shells do at a login is not for pods, where it may be killed half-way.
ENTER = """
for file in ~root/.bashrc /etc/bash.bashrc; do [ ! -e "$file" ] || mount --bind /dev/null "$file"; done
hostname "$1" && mount --bind "$2" /etc/hosts && mount -t tmpfs -o size="$3" tmpfs /dev/shm &&
mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd && mount --bind "$4" /etc/ssh/ssh_config || exit 99
shift 4; exec "$@"
"""


class Pods:
    """So many workers and a launcher, whose sshd do not run yet. A context manager."""

    def __init__(self, workers, shm="64m"):
        self.workers, self.shm = range(workers), shm
        self.stack = contextlib.ExitStack()
        self.cluster = self.stack.enter_context(Cluster(workers + 1, "10gbit"))
        self.folder = pathlib.Path(self.cluster.folder.name)
        self.hosts_file = self.folder / "hosts"
        self.hostfile = self.folder / "hostfile"
        self.running = {}
        self.make_ssh()
        self.name_all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stack.close()
        for process in self.running.values():
            process.wait()

    @staticmethod
    def name(worker):
        return f"{JOB}-worker-{worker}.{JOB}.default.svc"

    # The operator's one pair of keys for the job, and the image's configuration with this test's folder as the home.
    def make_ssh(self):
        keys = self.folder / "keys"
        keys.mkdir(mode=0o700)
        subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", keys / "id_rsa"], check=True)
        shutil.copy(keys / "id_rsa.pub", keys / "authorized_keys")
        server = (IMAGES / "sshd_config").read_text()
        for old, new in (("/home/mpiuser/.ssh", str(keys)), (".ssh/authorized_keys", str(keys / "authorized_keys")),
                         ("AllowUsers mpiuser", "AllowUsers root")):
            assert old in server, old
            server = server.replace(old, new)
        (self.folder / "sshd_config").write_text(server)
        client = (IMAGES / "ssh_config").read_text()
        for old in ("~/.ssh", "%d/.ssh"):
            assert old in client, old
            client = client.replace(old, str(keys))
        (self.folder / "ssh_config").write_text(client)

    def write_hosts(self, workers):
        lines = ["# Kubernetes-managed hosts file.", "127.0.0.1\tlocalhost"]
        lines += [f"{self.cluster.address(worker + 1)}\t{self.name(worker)}\t{JOB}-worker-{worker}"
                  for worker in workers]
        self.hosts_file.write_text("\n".join(lines) + "\n")  # in place: what is mounted is this very file

    def name_all(self, slots=1):
        self.write_hosts(self.workers)
        self.hostfile.write_text("".join(f"{self.name(worker)} slots={slots}\n" for worker in self.workers))

    def in_pod(self, host, hostname, *command):
        return self.cluster.on(
            host, "unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", ENTER,
            "pod", hostname, str(self.hosts_file), self.shm, str(self.folder / "ssh_config"), *map(str, command))

    def start(self, worker, delay=0.0):
        """The worker's sshd, so much later."""
        command = [SSHD, "-De", "-f", self.folder / "sshd_config"]
        if delay:
            command = ["sh", "-c", f"sleep {delay}; exec \"$@\"", "late", *command]
        log = open(self.folder / f"sshd-{worker}.log", "wb")
        self.running[worker] = subprocess.Popen(
            self.in_pod(worker + 1, f"{JOB}-worker-{worker}", *command), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()

    def kill(self, host):
        """Kills all of a pod, also what is being started there meanwhile."""
        end_all(self.cluster.name(host))

    def stop(self, worker):
        self.kill(worker + 1)
        self.running.pop(worker).wait()

    def idle(self):
        """What runs in each worker's pod while there is no job."""
        for worker in self.running:
            wait_for(lambda worker=worker: self.listens(worker), 10)
        return {worker: set(self.cluster.pids(worker + 1)) for worker in self.running}

    def listens(self, worker):
        shown = subprocess.run(self.cluster.on(worker + 1, "ss", "-Hltn"), capture_output=True, text=True, check=True)
        return ":2222 " in shown.stdout

    def left(self, idle):
        """Processes of a job that still run: in workers' pods and in the launcher's."""
        left = [pid for worker, pids in idle.items() if worker in self.running
                for pid in set(self.cluster.pids(worker + 1)) - pids]
        return left + self.cluster.pids(len(self.workers) + 1)

    def launch(self, *command):
        """gyrerun in the launcher's pod."""
        return subprocess.Popen(
            self.in_pod(len(self.workers) + 1, f"{JOB}-launcher", *command), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(holds, seconds):
    deadline = time.monotonic() + seconds
    while not (answer := holds()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return answer
