#!/usr/bin/env python3
"""Runs stock RDMA applications, unmodified, on Farverbs' libraries: over loopback, and between two
network namespaces. Every row passes or fails; its output is kept.

    ./dev apps [--quick] [--only REGEX] [--place loopback|namespaces] [--list] [--json FILE]

Needs network namespaces (root, or a kernel that lets users make them: then loopback only).
Exit codes: 0 all passed that are not known to fail, 1 something failed, 2 nothing could be run.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from rows import rows

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
DELAY = 0.7


def quiet(command, check=True):
    return subprocess.run(command, check=check, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True)


class Place:
    """Where a row runs: how a command is put into each end, and what the ends are called."""

    name = ""

    def __init__(self):
        self.names = {}

    def device(self, farverbs, end):
        """The RDMA device at an end: the one that is not loopback, if there is one."""
        listing = subprocess.run([*self.enter(end), farverbs, "run", "--", "ibv_devices"],
                                 capture_output=True, text=True, timeout=30, check=False)
        found = re.findall(r"^\s+(\S+)\s+[0-9a-f]{16}$", listing.stdout, re.M)
        if not found:
            raise RuntimeError("ibv_devices shows no device:\n" + listing.stdout + listing.stderr)
        beyond = [name for name in found if not name.endswith("_lo")]
        loopback = [name for name in found if name.endswith("_lo")]
        return (beyond if self.name == "namespaces" else loopback)[0]


class Loopback(Place):
    """One network namespace; nothing leaves it. Some programs, libfabric's verbs among them, want
    to see an interface that is not loopback before they use any."""

    name = "loopback"

    def __init__(self):
        super().__init__()
        self.space = f"fvapps{os.getpid()}l"
        quiet(["ip", "netns", "add", self.space])
        for command in ("link set lo up", "link set lo multicast on",
                        "route add 224.0.0.0/4 dev lo", "link add fvd type veth peer name fve", "link set fve up",
                        "addr add 10.214.0.1/24 dev fvd", "link set fvd up"):
            quiet(["ip", "-n", self.space, *command.split()])
        self.names = {"self": "127.0.0.1", "peer": "127.0.0.1", "other": "127.0.0.1",
                      "mpi_hosts": ""}

    def enter(self, _end):
        return ["ip", "netns", "exec", self.space]

    def close(self):
        quiet(["ip", "netns", "del", self.space], check=False)


class Namespaces(Place):
    """Two network namespaces with a veth pair between them."""

    name = "namespaces"

    def __init__(self):
        super().__init__()
        self.spaces = {end: f"fvapps{os.getpid()}{end}" for end in ("server", "client")}
        for space in self.spaces.values():
            quiet(["ip", "netns", "add", space])
            quiet(["ip", "-n", space, "link", "set", "lo", "up"])
        server, client = self.spaces["server"], self.spaces["client"]
        quiet(["ip", "link", "add", "fvw", "netns", server, "type", "veth", "peer", "name", "fvw",
               "netns", client])
        link = "fvw"
        for space, last in ((server, 1), (client, 2)):
            for command in (f"addr add 10.213.0.{last}/24 dev {link}",
                            f"addr add fd13::{last}/64 dev {link} nodad", f"link set {link} up",
                            f"route add 224.0.0.0/4 dev {link}"):
                quiet(["ip", "-n", space, *command.split()])
        os.environ["FARVERBS_APPS_CLIENT"] = client
        self.names = {"self": "10.213.0.1", "peer": "10.213.0.1", "other": "10.213.0.2",
                      "mpi_hosts": f"--host 10.213.0.1,10.213.0.2 --mca plm_rsh_agent "
                                   f"{HERE}/enter_namespace.sh"}

    def enter(self, end):
        return ["ip", "netns", "exec", self.spaces[end]]

    def close(self):
        for space in self.spaces.values():
            quiet(["ip", "netns", "del", space], check=False)


class Running:
    """A command of a row, its output in a file."""

    def __init__(self, command, path):
        self.path = path
        with open(path, "wb") as file:
            file.write(("$ " + shlex.join(command) + "\n").encode())
            file.flush()
            self.process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT,
                                            stdin=subprocess.DEVNULL, start_new_session=True)

    def wait(self, until):
        try:
            return self.process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None

    def end(self):
        """Ends the command and its children, and nobody else."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                break
            try:
                self.process.wait(3)
            except subprocess.TimeoutExpired:
                continue
        self.process.wait()

    def output(self):
        with open(self.path, "r", encoding="utf-8", errors="replace") as file:
            return file.read()


class Runner:
    def __init__(self, farverbs, place, folder, mpi_program):
        self.farverbs = farverbs
        self.place = place
        self.folder = folder
        self.mpi_program = mpi_program
        self.devices = {}

    def device(self, end):
        if end not in self.devices:
            self.devices[end] = self.place.device(self.farverbs, end)
        return self.devices[end]

    def command(self, text, end, scratch):
        names = dict(self.place.names, dev=self.device(end), scratch=scratch, tests=HERE,
                     mpi_program=self.mpi_program)
        words = shlex.split(text.format(**names))
        return [*self.place.enter(end), self.farverbs, "run", "--", *words]

    def wait_ready(self, row, server, scratch):
        until = time.monotonic() + 15
        kind, _, rest = row.ready.partition(":")
        while time.monotonic() < until and server.process.poll() is None:
            if kind == "tcp":
                listening = subprocess.run([*self.place.enter("server"), "ss", "-Hltn"],
                                           capture_output=True, text=True, check=False).stdout
                if re.search(rf":{rest}\s", listening):
                    return
            elif kind == "file":
                if os.path.exists(rest.format(scratch=scratch)):
                    time.sleep(DELAY)
                    return
            else:
                time.sleep(DELAY)
                return
            time.sleep(0.1)

    def run(self, row):
        """Why the row failed; None if it passed."""
        kept = os.path.join(self.folder, self.place.name, re.sub(r"[^\w.-]+", "_", row.name))
        os.makedirs(kept, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fvapps") as scratch:
            with open(os.path.join(scratch, "from"), "wb") as file:
                file.write(os.urandom(1 << 20))
            running = []
            until = time.monotonic() + row.seconds
            try:
                server = Running(self.command(row.server, "server", scratch),
                                 os.path.join(kept, "server.txt"))
                running.append(server)
                client = server
                if row.client is not None:
                    self.wait_ready(row, server, scratch)
                    client = Running(self.command(row.client, "client", scratch),
                                     os.path.join(kept, "client.txt"))
                    running.append(client)
                return self.judge(row, server, client, until)
            finally:
                for each in reversed(running):
                    each.end()

    def judge(self, row, server, client, until):
        status = client.wait(until)
        if status is None:
            return f"the client had not ended after {row.seconds} s"
        if status != 0:
            return f"the client ended with status {status}"
        if client is not server and row.server_status is not None:
            ended = server.wait(min(until, time.monotonic() + 10))
            if ended is None:
                return "the server had not ended 10 s after the client"
            if ended != row.server_status:
                return f"the server ended with status {ended}"
        names = dict(self.place.names, dev=re.escape(self.device("client")))
        for which, end, patterns in (("client", client, row.expect),
                                     ("server", server, row.server_expect)):
            for pattern in patterns:
                filled = pattern
                for key, value in names.items():
                    filled = filled.replace("{" + key + "}", value)
                if not re.search(filled, end.output()):
                    return f"the {which}'s output does not hold /{filled}/"
        return None


def missing_packages(row):
    needs = [name for name in row.packages if not installed(name)]
    return needs


def installed(package):
    done = subprocess.run(["dpkg-query", "-W", "-f=${db:Status-Status}", package],
                          capture_output=True, text=True, check=False)
    return done.stdout.startswith("installed")


def build_mpi_program(folder):
    program = os.path.join(folder, "mpi_exchange")
    if shutil.which("mpicc"):
        subprocess.run(["mpicc", "-O1", "-o", program, os.path.join(HERE, "mpi_exchange.c")],
                       check=True)
    return program


def parse_arguments():
    parser = argparse.ArgumentParser(prog="./dev apps", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--farverbs", default=os.path.join(ROOT, "build/release/bin/farverbs"))
    parser.add_argument("--only", default="", help="rows whose name matches this expression")
    parser.add_argument("--place", choices=("loopback", "namespaces"))
    parser.add_argument("--quick", action="store_true", help="the few rows that CI runs")
    parser.add_argument("--list", action="store_true", help="names the rows and ends")
    parser.add_argument("--output", default=os.path.join(ROOT, "build/apps"),
                        help="where the rows' output is kept")
    parser.add_argument("--json", help="writes the outcomes to this file")
    return parser.parse_args()


def interrupted(number, _frame):
    """Whoever ends the run ends what it started, too."""
    raise SystemExit(128 + number)


def main():
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
    options = parse_arguments()
    chosen = [row for row in rows()
              if re.search(options.only, row.name) and (row.quick or not options.quick)]
    if options.list:
        for row in chosen:
            print(row.name)
        return 0
    if not os.access(options.farverbs, os.X_OK):
        print(f"apps: {options.farverbs} is not there; run ./dev build first", file=sys.stderr)
        return 2
    if os.geteuid() != 0:
        print("apps: making network namespaces needs root: run it as root, or in "
              "`unshare --user --map-root-user --net --mount`", file=sys.stderr)
        return 2
    os.makedirs(options.output, exist_ok=True)
    mpi_program = build_mpi_program(options.output)
    outcomes = []
    for kind in (Loopback, Namespaces):
        if options.place not in (None, kind.name):
            continue
        place = kind()
        try:
            runner = Runner(os.path.abspath(options.farverbs), place, options.output, mpi_program)
            for row in chosen:
                if kind.name not in row.places:
                    continue
                outcomes.append(run_row(runner, row))
        finally:
            place.close()
    return report(outcomes, options)


def run_row(runner, row):
    began = time.monotonic()
    missing = missing_packages(row) + [name for name in row.needs if not shutil.which(name)]
    if missing:
        outcome, why = "not run", "install " + " ".join(missing)
    else:
        try:
            why = runner.run(row)
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            why = str(error)
        outcome = "passed" if why is None else "failed"
        if row.known:
            outcome = "known" if why is not None else "failed"
            why = row.known if why is not None else "passes, but is said not to: " + row.known
    seconds = time.monotonic() - began
    print(f"{outcome:8} {runner.place.name:10} {row.name:44} {seconds:5.1f} s  {why or ''}",
          flush=True)
    return {"name": row.name, "group": row.group, "place": runner.place.name, "outcome": outcome,
            "seconds": round(seconds, 1), "why": why}


def report(outcomes, options):
    counts = {kind: sum(o["outcome"] == kind for o in outcomes)
              for kind in ("passed", "failed", "known", "not run")}
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"rows": outcomes, "counts": counts}, file, indent=1)
    print(f"\n{counts['passed']} passed, {counts['failed']} failed, "
          f"{counts['known']} known not to pass, {counts['not run']} not run; "
          f"output in {options.output}")
    if not outcomes or counts["passed"] == 0:
        return 1 if counts["failed"] else 2
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
