#!/usr/bin/env python3
"""Stock programs on Farverbs' libraries against the same programs on a kernel's own soft RDMA
(rdma_rxe in a guest, see rig/README.md).

    ./dev interop [--only REGEX] [--mtu 1500|4200] [--list] [--keep] [--json FILE]

Each row has a side that serves and a side that asks, one of them Farverbs ("us"), the other rxe
("them"). What crosses the line is captured and looked at by tshark: a malformed packet fails the
row. Needs root, QEMU and a minute to boot. Exit codes: 0 all passed, 1 something failed, 2 the rig
does not come up.
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
import time
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
RIG = os.path.join(HERE, "rig")
SPACE = os.environ.get("RIG_NETNS", "fv-rig")
ENTER = ["ip", "netns", "exec", SPACE]
OURS, THEIRS = ("10.77.0.1", "fd77::1"), ("10.77.0.2", "fd77::2")


@dataclass(frozen=True)
class Row:
    name: str
    server: str  # {dev} {gid} {self}: at that end; {peer}: the server's address, {peer4}: IPv4's
    client: str
    expect: str
    serves: str  # "us" or "them"
    ipv6: bool = False
    loss: float = 0.0  # per cent, both ways
    seconds: int = 60


def templates():
    """name, server, client, what the client's output must hold, whether loss is for it too."""
    ping = r"bytes in .* seconds"
    for kind, arguments in (("rc", ""), ("rc", "-e -s 100000 -n 100"), ("uc", ""),
                            ("ud", "-s 1000"), ("srq", "")):
        command = f"ibv_{kind}_pingpong -d {{dev}} -g {{gid}} {arguments}"
        yield (f"{kind} pingpong {arguments}".strip(), command, command + " {peer4}", ping,
               kind == "rc")
    table = r"\n ?#bytes[^\n]*\n +\d+ +\d+ "
    for program, arguments in (("ib_write_bw", "-n 500"), ("ib_read_bw", "-n 200"),
                               ("ib_send_bw", "-n 500"), ("ib_atomic_bw", "-n 200"),
                               ("ib_write_lat", "-n 200"), ("ib_send_lat", "-n 200"),
                               ("ib_atomic_lat", "-n 100")):
        command = f"{program} -d {{dev}} -x {{gid}} -F {arguments}"
        yield f"{program} {arguments}", command, command + " {peer4}", table, True
    yield ("rping", "rping -s -a {self} -C 10 -v -S 3000", "rping -c -a {peer} -C 10 -v -S 3000",
           r"ping data: rdma-ping-9", True)
    yield ("ucmatose", "ucmatose -b {self} -C 20 -S 2000", "ucmatose -s {peer} -C 20 -S 2000",
           r"return status 0", True)
    yield ("udaddy", "udaddy -b {self} -C 10", "udaddy -s {peer} -C 10", r"return status 0", False)


def rows():
    for name, server, client, expect, lossy in templates():
        for serves in ("us", "them"):
            yield Row(f"{name}, {serves} serving", server, client, expect, serves)
            yield Row(f"{name}, {serves} serving, IPv6", server, client, expect, serves, ipv6=True)
            if lossy:
                yield Row(f"{name}, {serves} serving, 1 % loss", server, client, expect, serves,
                          loss=1.0, seconds=120)


def in_guest(command, seconds=60, check=True):
    return subprocess.run([f"{RIG}/guest-exec", "-t", str(seconds), command], text=True,
                          capture_output=True, check=check, timeout=seconds + 30)


class Side:
    """How an end runs a command: ours in the namespace, theirs in the guest."""

    def __init__(self, farverbs):
        self.farverbs = farverbs
        listing = self.ours("ibv_devinfo -v").stdout
        device, self.gids = None, {}
        for line in listing.splitlines():
            found = re.match(r"hca_id:\s+(\S+)", line)
            device = found.group(1) if found else device
            found = re.search(r"GID\[\s*(\d+)\]:\s+(\S+?),", line)
            if found and "br0" in device:
                self.device = device
                address = found.group(2).removeprefix("::ffff:")
                self.gids[address] = found.group(1)
        if not self.gids:
            raise RuntimeError("no device of ours on br0:\n" + listing)

    def ours(self, command):
        return subprocess.run([*ENTER, self.farverbs, "run", "--", *shlex.split(command)],
                              text=True, capture_output=True, timeout=60, check=False)

    def command(self, text, who, row):
        which = 1 if row.ipv6 else 0
        server = (OURS if row.serves == "us" else THEIRS)[which]
        own = (OURS if who == "us" else THEIRS)[which]
        if who == "us":
            names = {"dev": self.device, "gid": self.gids.get(own, "missing")}
        else:
            names = {"dev": "rxe0", "gid": "2" if row.ipv6 else "1"}
        # Those that exchange numbers over TCP listen for IPv4 only.
        server4 = (OURS if row.serves == "us" else THEIRS)[0]
        text = text.format(self=own, peer=server, peer4=server4, **names)
        if who == "us":
            return [*ENTER, self.farverbs, "run", "--", *shlex.split(text)]
        return [f"{RIG}/guest-exec", "-t", str(row.seconds), text]


def set_loss(percent):
    """Loses so many of a hundred RoCE packets at the guest's border, both ways."""
    commands = ["nft delete table inet loss 2>/dev/null"]
    if percent:
        drop = f"udp dport 4791 numgen random mod 1000 < {round(10 * percent)} drop"
        commands.append("nft add table inet loss")
        for hook in ("input", "output"):
            commands.append(f"nft 'add chain inet loss {hook} {{ type filter hook {hook} priority 0; }}'")
            commands.append(f"nft 'add rule inet loss {hook} {drop}'")
    in_guest("; ".join(commands) + ("" if percent else "; true"), check=bool(percent))


def start(command, path):
    with open(path, "wb") as file:
        file.write(("$ " + shlex.join(command) + "\n").encode())
        file.flush()
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT,
                                stdin=subprocess.DEVNULL, start_new_session=True)


def end(process):
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, number)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            continue


def malformed(capture):
    """How many packets tshark calls malformed, and what the first says; None without tshark."""
    if not shutil.which("tshark"):
        return None
    # Payload that other dissectors guess at is none of ours: what is malformed inside it does not
    # count.
    done = subprocess.run(["tshark", "-r", capture, "-Y", "_ws.malformed", "-T", "fields",
                           "-e", "frame.number", "-e", "frame.protocols", "-e",
                           "_ws.expert.message"], capture_output=True, text=True, check=False)
    return [line for line in done.stdout.splitlines() if line.split("\t")[1].endswith("infiniband")]


def run(row, side, folder):
    """Why it failed, or None."""
    kept = os.path.join(folder, re.sub(r"[^\w.-]+", "_", row.name))
    os.makedirs(kept, exist_ok=True)
    asks = "them" if row.serves == "us" else "us"
    capture = os.path.join(kept, "line.pcap")
    set_loss(row.loss)
    dump = subprocess.Popen([*ENTER, "tcpdump", "-i", "g1eth0", "-w", capture, "-U",
                             "-c", "20000", "udp port 4791"],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    processes = []
    try:
        server = start(side.command(row.server, row.serves, row), f"{kept}/server.txt")
        processes.append(server)
        time.sleep(2.0)
        client = start(side.command(row.client, asks, row), f"{kept}/client.txt")
        processes.append(client)
        try:
            status = client.wait(row.seconds)
        except subprocess.TimeoutExpired:
            return f"the client had not ended after {row.seconds} s"
        if status != 0:
            return f"the client ended with status {status}"
        try:
            status = server.wait(20)
        except subprocess.TimeoutExpired:
            return "the server had not ended 20 s after the client"
        if status != 0:
            return f"the server ended with status {status}"
        with open(f"{kept}/client.txt", encoding="utf-8", errors="replace") as file:
            if not re.search(row.expect, file.read()):
                return f"the client's output does not hold /{row.expect}/"
    finally:
        for process in reversed(processes):
            end(process)
        dump.terminate()
        dump.wait()
        if row.serves == "them" or asks == "them":
            program = shlex.split(row.server)[0]
            in_guest(f"pkill -x {program[:15]}; true", check=False)
    wrong = malformed(capture)
    if wrong:
        return f"tshark: {len(wrong)} packets are malformed, first: {wrong[0]}"
    if wrong is None:
        print("         (tshark is not installed: the capture was not looked at)")
    return None


def interrupted(number, _frame):
    """Whoever ends the run ends what it started, too."""
    raise SystemExit(128 + number)


def main():
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
    parser = argparse.ArgumentParser(prog="./dev interop", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--farverbs", default=os.path.join(ROOT, "build/release/bin/farverbs"))
    parser.add_argument("--only", default="")
    parser.add_argument("--mtu", default="1500", choices=("1500", "4200"))
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--keep", action="store_true", help="leaves the guest running")
    parser.add_argument("--output", default=os.path.join(ROOT, "build/interop"))
    parser.add_argument("--json")
    options = parser.parse_args()
    chosen = [row for row in rows() if re.search(options.only, row.name)]
    if options.list:
        print("\n".join(row.name for row in chosen))
        return 0
    up = subprocess.run([f"{RIG}/guest-up", "--mtu", options.mtu], check=False)
    if up.returncode != 0:
        print("interop: the guest did not come up", file=sys.stderr)
        return 2
    outcomes = []
    folder = os.path.join(options.output, f"mtu{options.mtu}")
    try:
        side = Side(os.path.abspath(options.farverbs))
        for row in chosen:
            began = time.monotonic()
            try:
                why = run(row, side, folder)
            except (OSError, subprocess.SubprocessError) as error:
                why = str(error)
            print(f"{'failed' if why else 'passed'}  {row.name:44} "
                  f"{time.monotonic() - began:5.1f} s  {why or ''}", flush=True)
            outcomes.append({"name": row.name, "why": why})
        set_loss(0)
    finally:
        if not options.keep:
            subprocess.run([f"{RIG}/guest-down"], check=False)
    failed = sum(o["why"] is not None for o in outcomes)
    print(f"\n{len(outcomes) - failed} passed, {failed} failed; output in {folder}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"mtu": options.mtu, "rows": outcomes}, file, indent=1)
    return 1 if failed or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
