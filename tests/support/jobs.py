"""What campaigns need to watch a job: its lines with their times, and the processes and files that it left."""
import os
import pathlib
import re
import threading
import time


class Reader(threading.Thread):
    """Keeps each line of a stream with the time it came."""

    def __init__(self, stream):
        super().__init__(daemon=True)
        self.stream, self.lines = stream, []
        self.start()

    def run(self):
        for line in self.stream:
            self.lines.append((time.monotonic(), line.rstrip("\n")))

    def find(self, pattern):
        """The (time, match) pairs of all lines so far that match."""
        return [(when, found) for when, line in list(self.lines) if (found := re.search(pattern, line))]


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not (result := condition()) and time.monotonic() < deadline:
        time.sleep(0.002)
    return result


def stat(pid):
    """The fields of /proc/PID/stat from the state on; none if there is no such process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def alive(pid):
    fields = stat(pid)
    try:
        # A zombie has ended, and its parent has yet to look; unless it is only the first of several threads that ended.
        return bool(fields) and (fields[0] != "Z" or len(os.listdir(f"/proc/{pid}/task")) > 1)
    except OSError:
        return False


def every_process():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def command(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def parent(pid):
    return int((stat(pid) or [0, 0])[1])


def of_session(session):
    """The live processes of the session."""
    return [pid for pid in every_process() if stat(pid)[3:4] == [str(session)] and alive(pid)]


def user_files():
    """What lies in the directories that Gyre may use for this user, but for sockets that somebody listens at."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    directories = [pathlib.Path(f"/tmp/gyre-{os.geteuid()}")] + ([pathlib.Path(runtime, "gyre")] if runtime else [])
    rows = (line.split() for line in pathlib.Path("/proc/net/unix").read_text().splitlines())
    listened = {row[7] for row in rows if len(row) > 7}
    return {str(file) for directory in directories if directory.is_dir() for file in directory.iterdir()} - listened
