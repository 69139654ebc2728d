#!/usr/bin/env python3
"""Unmodified RDMA programs of the distribution on the drop-in libraries, over the loopback.

    stock_test.py FARVERBS_BINARY [ROW ...]

Each row starts a server and a client with `farverbs run` and succeeds if both do. Programs that are
not installed are named and left out; with FARVERBS_REQUIRE_STOCK set that is a failure.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

DEVICE, ADDRESS = "fv_lo", "127.0.0.1"
PATIENCE = 120  # seconds; the machine may be busy with other tests

PINGPONGS = {
    "rc_pingpong": "ibv_rc_pingpong -g 0",
    "rc_pingpong_events": "ibv_rc_pingpong -g 0 -e",
    "rc_pingpong_timestamps": "ibv_rc_pingpong -g 0 -t",
    "rc_pingpong_new_send": "ibv_rc_pingpong -g 0 -N",
    "rc_pingpong_events_new_send": "ibv_rc_pingpong -g 0 -e -N",
    "uc_pingpong": "ibv_uc_pingpong -g 0 -n 200",
    "ud_pingpong": "ibv_ud_pingpong -g 0 -n 200",
    "ud_pingpong_events": "ibv_ud_pingpong -g 0 -n 200 -e",
    "srq_pingpong": "ibv_srq_pingpong -g 0",
    "srq_pingpong_events": "ibv_srq_pingpong -g 0 -e",
}
PERFTEST = {
    **{f"{name}_{kind}": f"ib_{name}_{kind} -x 0 -n 500"
       for name in ("send", "write", "read", "atomic") for kind in ("bw", "lat")},
    "send_bw_events": "ib_send_bw -x 0 -n 500 -e",
    "send_lat_events": "ib_send_lat -x 0 -n 500 -e",
    "send_bw_ud": "ib_send_bw -x 0 -n 500 -c UD",
    "send_lat_ud": "ib_send_lat -x 0 -n 500 -c UD",
    "write_bw_uc": "ib_write_bw -x 0 -n 500 -c UC",
    "send_bw_srq": "ib_send_bw -x 0 -n 200 --use-srq -q 4",
    "write_bw_qps": "ib_write_bw -x 0 -n 200 -q 4",
    "send_bw_both_ways": "ib_send_bw -x 0 -n 200 -b",
    "write_lat_all_sizes": "ib_write_lat -x 0 -n 10 -a",
    "write_bw_duration": "ib_write_bw -x 0 -D 1",
    "write_lat_inline": "ib_write_lat -x 0 -n 500 -I 64 -s 64",
}
ROWS = {**PINGPONGS, **PERFTEST}


def free_port():
    with socket.socket() as listener:
        listener.bind((ADDRESS, 0))
        return listener.getsockname()[1]


def is_listening(port):
    listening = f":{port:04X} "
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="ascii") as file:
            for line in file:
                fields = line.split()
                if fields[1].endswith(listening.strip()) and fields[3] == "0A":
                    return True
    return False


def run_row(farverbs, name, command, folder):
    port = free_port()
    start = [farverbs, "run", "--", *command.split(), "-d", DEVICE, "-p", str(port)]
    logs = {side: open(os.path.join(folder, f"{name}.{side}"), "w+", encoding="utf-8")
            for side in ("server", "client")}
    server = subprocess.Popen(start, stdout=logs["server"], stderr=subprocess.STDOUT)
    client_code = None
    try:
        end = time.monotonic() + PATIENCE
        while not is_listening(port) and server.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        client = subprocess.run([*start, ADDRESS], stdout=logs["client"], stderr=subprocess.STDOUT,
                                timeout=PATIENCE, check=False)
        client_code = client.returncode
        server.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        pass
    finally:
        if server.poll() is None:
            server.kill()
        server.wait()
    if client_code == 0 and server.returncode == 0:
        return None
    text = f"server exit code {server.returncode}, client {client_code}\n"
    for side, log in logs.items():
        log.seek(0)
        text += f"--- {side}\n{log.read()}"
    return text


def main():
    farverbs, chosen = sys.argv[1], sys.argv[2:]
    missing, failed, passed = set(), [], 0
    with tempfile.TemporaryDirectory() as folder:
        for name, command in ROWS.items():
            if chosen and name not in chosen:
                continue
            program = command.split()[0]
            if shutil.which(program) is None:
                missing.add(program)
                continue
            problem = run_row(farverbs, name, command, folder)
            print(f"{'FAIL' if problem else 'pass'} {name}: {command}", flush=True)
            if problem:
                failed.append(name)
                print(problem)
            else:
                passed += 1
    print(f"{passed} passed, {len(failed)} failed {failed or ''}")
    if missing:
        print(f"NOT INSTALLED, so not tested: {', '.join(sorted(missing))} "
              "(Debian: ibverbs-utils, perftest)")
    if failed or (missing and os.environ.get("FARVERBS_REQUIRE_STOCK")):
        return 1
    return 77 if passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
