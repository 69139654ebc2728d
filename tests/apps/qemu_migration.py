#!/usr/bin/env python3
"""One end of a live migration over RDMA: qemu_migration.py ADDRESS target|source SCRATCH.

The target waits for the machine; the source starts the same machine, dirties nothing (no guest
runs), and moves it. Both talk to QEMU's monitor on a unix socket in SCRATCH.
"""

import os
import re
import socket
import subprocess
import sys
import time

PORT = 4444
SECONDS = 90


class Monitor:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        end = time.monotonic() + 20
        while True:
            try:
                self.socket.connect(path)
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
        self.socket.settimeout(SECONDS)
        self.read()

    def read(self):
        text = b""
        while not text.endswith(b"(qemu) "):
            more = self.socket.recv(65536)
            if not more:
                break
            text += more
        return text.decode(errors="replace")

    def ask(self, command):
        self.socket.sendall(command.encode() + b"\n")
        return self.read()


def start(scratch, name, extra):
    path = f"{scratch}/{name}.monitor"
    command = ["qemu-system-x86_64", "-M", "q35,accel=tcg", "-m", "64", "-display", "none",
               "-nodefaults", "-S" if name == "source" else "-no-reboot",
               "-monitor", f"unix:{path},server=on,wait=off", *extra]
    return subprocess.Popen(command), path


def main():
    address, end, scratch = sys.argv[1:4]
    uri = f"rdma:{address}:{PORT}"
    process, path = start(scratch, end, ["-incoming", uri] if end == "target" else [])
    try:
        monitor = Monitor(path)
        if end == "target":
            open(f"{scratch}/target-ready", "w", encoding="utf-8").close()
            wanted = r"VM status: (?!paused \(inmigrate\))"
            question = "info status"
        else:
            print(monitor.ask(f"migrate -d {uri}"))
            wanted = r"Migration status: (completed|failed)"
            question = "info migrate"
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            answer = monitor.ask(question)
            if re.search(wanted, answer):
                print(answer)
                break
            time.sleep(0.2)
        else:
            print(answer)
            return 1
        monitor.ask("quit") if end == "source" else time.sleep(0.5)
        return 1 if "failed" in answer else 0
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(10)


if __name__ == "__main__":
    sys.exit(main())
