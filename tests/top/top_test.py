#!/usr/bin/env python3
"""top_test.py FARVERBS: `farverbs top` beside a measurement over loopback: JSON, Prometheus, and that
another user gets nothing."""

import json
import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
import time
import urllib.request

FARVERBS = sys.argv[1]


def top(*arguments):
    return subprocess.run([FARVERBS, "top", "--once", "--interval", "0.3", *arguments],
                          capture_output=True, text=True)


def read(path):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(path)
        text = b""
        while part := connection.recv(65536):
            text += part
        return text


def check_json(client):
    answer = top("--json")
    assert answer.returncode == 0, answer.stderr
    devices = {device["pid"]: device for device in json.loads(answer.stdout)["devices"]}
    ours = devices[client]
    assert ours["process"] == "perf client", ours["process"]
    (qp,) = ours["qps"]
    assert qp["state"] == "RTS" and qp["sent_bits_per_second"] > 1e6, qp
    (path,) = ours["paths"]
    assert path["peer"].startswith("127.0.0.1:"), path
    assert path["requests"]["window_bytes"] > 0 or "far" in path, path
    alone = json.loads(top("--json", "--pid", str(client)).stdout)["devices"]
    assert [device["pid"] for device in alone] == [client], alone
    assert top("--pid", "1").returncode == 1


def check_prometheus(client):
    exporter = subprocess.Popen([FARVERBS, "top", "--prometheus", "0"], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
    try:
        line = exporter.stdout.readline()
        if not line:
            error = exporter.stderr.read()
            assert "prometheus-cpp-dev" in error, error
            print("this build has no Prometheus endpoint: not tested")
            return
        address = re.search(r"http://127\.0\.0\.1:\d+/metrics", line).group(0)
        with urllib.request.urlopen(address, timeout=10) as page:
            text = page.read().decode()
        sent = re.search(rf'farverbs_qp_sent_payload_bytes_total{{pid="{client}",[^}}]*}} (\S+)', text)
        assert sent and float(sent.group(1)) > 0, text
    finally:
        exporter.terminate()
        assert exporter.wait(10) == 0


def check_strangers(folder):
    """Even with the permissions of the folder out of the way."""
    (path,) = [os.path.join(folder, name) for name in os.listdir(folder)][:1]
    assert stat.S_IMODE(os.stat(folder).st_mode) & 0o077 == 0
    assert read(path), "the same user gets an answer"
    if os.geteuid() != 0:
        return
    os.chmod(folder, 0o755)
    os.chmod(path, 0o777)
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        try:
            got = read(path)
        except ConnectionResetError:
            got = b""
        os._exit(0 if not got else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "a stranger got an answer"
    os.chmod(folder, 0o700)


def main():
    with tempfile.TemporaryDirectory() as parent:
        # Reachable for the stranger.
        os.chmod(parent, 0o755)
        folder = os.path.join(parent, "stats")
        os.environ["FARVERBS_STATS"] = folder
        server = subprocess.Popen([FARVERBS, "perf", "server", "--bind", "127.0.0.1", "--port", "0",
                                   "--once", "--json"], stdout=subprocess.PIPE, text=True)
        port = json.loads(server.stdout.readline())["listening"]["port"]
        client = subprocess.Popen([FARVERBS, "perf", "client", "127.0.0.1", "--port", str(port),
                                   "--seconds", "6", "--json"], stdout=subprocess.DEVNULL)
        try:
            end = time.monotonic() + 10
            while not any(name.startswith(f"{client.pid}-") for name in
                          (os.listdir(folder) if os.path.isdir(folder) else [])):
                assert time.monotonic() < end, "the client shows nothing"
                time.sleep(0.02)
            time.sleep(0.3)
            check_json(client.pid)
            check_prometheus(client.pid)
            check_strangers(folder)
        finally:
            client.terminate()
            client.wait()
            server.terminate()
            server.wait()
        text = top().stdout
        assert "0 queue pairs in 0 processes" in text, text
    print("looked at")


main()
