"""Programs in a namespace, and what they cost: CPU seconds come from wait4, for ours and for the
yardsticks alike, and so hold everything a program does from its start to its end."""

import os
import select
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass

from .isolation import die_with_parent, mount, set_namespace, unshare, CLONE_NEWNS
from .outcome import Failed

LISTEN = "0A"
START_SECONDS = 30
END_SECONDS = 15


@dataclass
class Result:
    """Of a program that has ended."""
    exit_code: int  # negative: the signal that killed it
    out: str
    err: str
    cpu_seconds: float

    def why(self):
        """The last thing it said, to be shown to people."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        said = lines[-1].strip() if lines else "it said nothing"
        how = f"signal {-self.exit_code}" if self.exit_code < 0 else f"exit code {self.exit_code}"
        return f"{how}: {said}"


def listening_ports(table):
    """Ports in state LISTEN of the text of /proc/PID/net/tcp or tcp6."""
    ports = set()
    for line in table.splitlines()[1:]:
        words = line.split()
        if len(words) > 3 and words[3] == LISTEN:
            ports.add(int(words[1].rpartition(":")[2], 16))
    return ports


class Process:
    """A program that runs. As a context manager it does not outlive the block, nor this process."""

    def __init__(self, command, end=None, environment=None, own_sysfs=False, cpus=None):
        self.command = [str(word) for word in command]
        self._out = tempfile.TemporaryFile()
        self._err = tempfile.TemporaryFile()
        self._result = None

        def prepare():
            die_with_parent()
            if end is not None:
                set_namespace(end.fd)
            if cpus:
                os.sched_setaffinity(0, cpus)
            if own_sysfs:
                # /sys shows the network of the namespace it was mounted in.
                unshare(CLONE_NEWNS)
                mount("sysfs", "/sys")

        try:
            self._popen = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._err,
                preexec_fn=prepare, start_new_session=True,
                env={**os.environ, **(environment or {})})
        except (OSError, subprocess.SubprocessError) as error:
            raise Failed(f"cannot start {self.command[0]}: {error}") from error
        self.pid = self._popen.pid
        self._pidfd = os.pidfd_open(self.pid)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._result is None:
            self.signal(signal.SIGKILL)
            self._reap()
        os.close(self._pidfd)
        self._out.close()
        self._err.close()

    def signal(self, number):
        """To the program and what it started."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass

    def _ended(self, seconds):
        return bool(select.select([self._pidfd], [], [], max(seconds, 0))[0])

    def _reap(self):
        _, status, usage = os.wait4(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self._popen.returncode = code

        def text(file):
            file.seek(0)
            return file.read().decode(errors="replace")
        self._result = Result(code, text(self._out), text(self._err),
                              usage.ru_utime + usage.ru_stime)

    def wait(self, seconds):
        """The result; Failed if it takes longer than `seconds`."""
        if self._result is None:
            if not self._ended(seconds):
                self.signal(signal.SIGKILL)
                self._reap()
                raise Failed(f"{self.name()} did not end within {seconds:.0f} s")
            self._reap()
        return self._result

    def name(self):
        return " ".join([os.path.basename(self.command[0])] + self.command[1:3])

    def settle(self, seconds):
        """Gives a program that shows nobody when it listens some time to begin."""
        if self._ended(seconds):
            raise Failed(f"{self.name()} ended at once: {self.wait(1).why()}")

    def wait_for_port(self, port):
        """Until the program listens on a TCP port."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            for table in ("tcp", "tcp6"):
                try:
                    with open(f"/proc/{self.pid}/net/{table}", encoding="ascii") as file:
                        if port in listening_ports(file.read()):
                            return
                except OSError:
                    pass
            if self._ended(0.005):
                raise Failed(f"{self.name()} ended before it listened: {self.wait(1).why()}")
        raise Failed(f"{self.name()} does not listen on port {port}")


def run(command, seconds, end=None, environment=None, own_sysfs=False, cpus=None):
    """A program to its end, which must be a good one."""
    with Process(command, end, environment, own_sysfs, cpus) as process:
        result = process.wait(seconds)
    if result.exit_code != 0:
        raise Failed(f"{process.name()}: {result.why()}")
    return result


def run_pair(network, server, client, port, seconds, **options):
    """A server in `far`, then its client in `near`; (client's result, CPU seconds of both).
    The server ends by itself after one client, or is told to. Both run where network.cpus says:
    what a pair costs and moves depends on whether its ends share a processor."""
    near, far = network.cpus
    with Process(server, network.far, cpus=far, **options) as serving:
        serving.wait_for_port(port)
        result = run(client, seconds, network.near, cpus=near, **options)
        if not serving._ended(END_SECONDS):  # pylint: disable=protected-access
            serving.signal(signal.SIGTERM)
        served = serving.wait(END_SECONDS)
    return result, result.cpu_seconds + served.cpu_seconds
