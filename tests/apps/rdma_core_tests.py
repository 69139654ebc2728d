#!/usr/bin/env python3
"""rdma-core's own Python tests, as Debian's python3-pyverbs ships them, against the libraries in
use. Prints which were skipped and why, and ends with a line of counts.

    farverbs run -- tests/apps/rdma_core_tests.py --dev fv_lo --gid 0
"""

import collections
import gzip
import os
import re
import subprocess
import sys
import tempfile

SOURCE = "/usr/share/doc/rdma-core/tests"
# Of one vendor's devices, or of GPUs.
FOREIGN = re.compile(r"mlx5|efa|cuda|hns")
# What is expected to fail, and why. It must fail, or its line must go.
KNOWN = {
    "test_multi_process_alloc_dm": "a forked child cannot use its parent's device, by design",
    "test_create_dm_mr": "registers no bytes at all, which is refused",
}


def unpack(folder):
    package = os.path.join(folder, "tests")
    os.mkdir(package)
    for name in sorted(os.listdir(SOURCE)):
        path = os.path.join(SOURCE, name)
        opener, target = (gzip.open, name[:-3]) if name.endswith(".gz") else (open, name)
        with opener(path, "rb") as file:
            content = file.read()
        with open(os.path.join(package, target), "wb") as file:
            file.write(content)
    return [name[:-3] for name in sorted(os.listdir(package))
            if name.startswith("test_") and not FOREIGN.search(name)]


def main():
    if not os.path.isdir(SOURCE):
        print(f"{SOURCE} is not there: install python3-pyverbs (documentation included)")
        return 2
    arguments = sys.argv[1:]
    wanted = []
    if "--only" in arguments:
        at = arguments.index("--only")
        wanted = [arguments[at + 1]]
        del arguments[at:at + 2]
    outcomes = collections.Counter()
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for module in wanted or unpack(folder):
            if wanted:
                unpack(folder)
            script = ("import sys, unittest\n"
                      "sys.path[:0] = ['', 'tests']\n"
                      "from args_parser import parser\n"
                      "parser.parse_args()\n"
                      f"unittest.main(module='tests.{module}', verbosity=2)\n")
            try:
                done = subprocess.run(["/usr/bin/python3", "-c", script, *arguments], cwd=folder,
                                      capture_output=True, text=True, timeout=120, check=False)
                text, status = done.stdout + done.stderr, done.returncode
            except subprocess.TimeoutExpired as late:
                text, status = (late.stderr or b"").decode() + "\nTIMEOUT", -1
            print(f"== {module}: status {status}\n{text}")
            for outcome, count in outcomes_of(text).items():
                outcomes[outcome] += count
            for name in re.findall(r"^(?:FAIL|ERROR): (\S+) ", text, re.M):
                if name in KNOWN:
                    outcomes["failed"] -= 1
                    outcomes["known"] += 1
                    print(f"known: {name}: {KNOWN[name]}")
            if status != 0 and not re.search(r"\.\.\. (FAIL|ERROR)", text):
                outcomes["failed"] += 1
                failed.append(f"{module} (status {status})")
            failed += re.findall(r"^(?:FAIL|ERROR): (\S+ \(\S+\))", text, re.M)
    for name in failed:
        print(f"failed: {name}")
    print(f"rdma-core's tests: {outcomes['ok']} passed, {outcomes['failed']} failed, "
          f"{outcomes['skipped']} skipped, {outcomes['known']} known to fail")
    return 1 if outcomes["failed"] else 0


def outcomes_of(text):
    counts = collections.Counter()
    for outcome in re.findall(r"\.\.\. (ok|FAIL|ERROR|skipped)", text):
        counts["failed" if outcome in ("FAIL", "ERROR") else outcome] += 1
    return counts


if __name__ == "__main__":
    sys.exit(main())
