#!/usr/bin/env python3
"""Farverbs' libraries against the kernel's rxe, by the same perftest programs in the same guest.

    ./dev interop --race [--rounds N] [--seconds S] [--json FILE]

rxe of this kernel has its sockets in the first network namespace only, and takes UDP port 4791
there: so both ends of its pairs are in that one, where it hands packets over within the kernel.
Farverbs runs between two namespaces of the guest, joined by veth: the longer way. Rounds interleave; ratios are taken within a round; medians are shown.
The guest is emulated: only ratios mean anything.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
RIG = os.path.join(HERE, "rig")
LIBRARIES = "/mnt/host/farverbs"
PRELOAD = (f"env LD_LIBRARY_PATH={LIBRARIES} "
           f"LD_PRELOAD={LIBRARIES}/libibverbs.so.1:{LIBRARIES}/librdmacm.so.1")
# name, prefixes of server and client, device, GID index, the server's address
PLACES = {
    "rxe": ("", "", "rxe0", 1, "10.77.0.2"),
    "farverbs, two namespaces": (f"ip netns exec one {PRELOAD}", f"ip netns exec two {PRELOAD}",
                                 "fv_w", 0, "10.66.0.1"),
}
# what, program, options, pattern of the figure, more is better
TESTS = (
    ("write bandwidth, 1 MiB", "ib_write_bw", "-s 1048576 -D {seconds}", "average", True, 2, 4),
    ("send bandwidth, 64 KiB", "ib_send_bw", "-s 65536 -D {seconds}", "average", True, 2, 4),
    ("read bandwidth, 64 KiB", "ib_read_bw", "-s 65536 -D {seconds}", "average", True, 2, 4),
    ("send latency, 64 B", "ib_send_lat", "-s 64 -n 3000", "typical", False, 0.8, 0.5),
    ("write latency, 64 B", "ib_write_lat", "-s 64 -n 3000", "typical", False, 0.8, 0.5),
)


def guest(command, seconds=60, check=True):
    done = subprocess.run([f"{RIG}/guest-exec", "-t", str(seconds), command], text=True,
                          capture_output=True, timeout=seconds + 30, check=False)
    if check and done.returncode != 0:
        raise RuntimeError(f"in the guest: {command}: {done.stdout}{done.stderr}")
    return done.stdout


def figure(text, name):
    lines = [line for line in text.splitlines() if line.strip()]
    for heading, row in zip(lines, lines[1:]):
        if heading.strip().startswith("#bytes"):
            names = heading.split("#bytes")[1]
            columns = ["#bytes", *re.findall(r"#?[\w%.]+(?: [a-z]+)?\[[^\]]*\]|#iterations|"
                                             r"[\d.]+% percentile\[[^\]]*\]|BW \w+\[[^\]]*\]", names)]
            for column, value in zip(columns, row.split()):
                if name in column:
                    return float(value)
    raise RuntimeError(f"no '{name}' in: {text.strip()[-400:]}")


def measure(place, test, seconds):
    server_prefix, client_prefix, device, gid, address = PLACES[place]
    _, program, options, column, *_ = test
    command = f"{program} -d {device} -x {gid} -F {options.format(seconds=seconds)}"
    job = subprocess.run([f"{RIG}/guest-exec", "-b", f"{server_prefix} {command}"], text=True,
                         capture_output=True, check=True).stdout.strip()
    try:
        enter = server_prefix.split(" env ")[0] if server_prefix else ""
        guest(f"for i in $(seq 100); do {enter} ss -Hltn | grep -q :18515 && exit 0; sleep 0.2; done; "
              "echo the server does not listen; exit 1", 60)
        return figure(guest(f"{client_prefix} {command} {address}", 60 + 3 * seconds), column)
    finally:
        subprocess.run([f"{RIG}/guest-exec", "-k", job], capture_output=True, check=False)


def main():
    parser = argparse.ArgumentParser(prog="./dev interop --race", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--libraries", default=os.path.join(ROOT, "build/release/lib"))
    parser.add_argument("--json")
    options = parser.parse_args()
    os.environ.setdefault("RIG_NETNS", "fv-race")
    with tempfile.TemporaryDirectory(prefix="fvrace") as shared:
        stage(options.libraries, shared)
        up = subprocess.run([f"{RIG}/guest-up", "--share", shared], check=False)
        if up.returncode != 0:
            return 2
        results = race(options)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    return 0 if results else 1


def stage(libraries, shared):
    """The drop-in libraries, and what they need beyond what the guest has."""
    target = os.path.join(shared, "farverbs")
    shutil.copytree(os.path.join(libraries, "farverbs"), target)
    needed = subprocess.run(["ldd", os.path.join(target, "libibverbs.so.1")], text=True,
                            capture_output=True, check=True).stdout
    for path in re.findall(r"=> (\S*libisal\S*)", needed):
        shutil.copy(path, target)


def race(options):
    results = []
    try:
        guest("ip netns add one; ip netns add two; "
              "ip link add w netns one type veth peer name w netns two")
        for name, last in (("one", 1), ("two", 2)):
            guest(f"ip -n {name} addr add 10.66.0.{last}/24 dev w; ip -n {name} link set w up; "
                  f"ip -n {name} link set lo up")
        for test in TESTS:
            ratios = {}
            for _ in range(options.rounds):
                try:
                    yardstick = measure("rxe", test, options.seconds)
                    for place in list(PLACES)[1:]:
                        ratios.setdefault(place, []).append(
                            measure(place, test, options.seconds) / yardstick)
                except (RuntimeError, subprocess.SubprocessError) as error:
                    print(f"{test[0]}: {error}", file=sys.stderr, flush=True)
            for place, values in ratios.items():
                if not values:
                    continue
                must, aim, more = test[5], test[6], test[4]
                median = statistics.median(values)
                reached = median >= must if more else median <= must
                print(f"{test[0]:26} {place:26} / rxe  {median:6.2f} "
                      f"({min(values):.2f}..{max(values):.2f})  must {must}, aim {aim}: "
                      f"{'reached' if reached else 'MISSED'}", flush=True)
                results.append({"what": test[0], "place": place, "ratios": values})
    finally:
        subprocess.run([f"{RIG}/guest-down"], check=False)
    return results


if __name__ == "__main__":
    sys.exit(main())
