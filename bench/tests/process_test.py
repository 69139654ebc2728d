"""Programs, their cost and their end."""

import os
import signal
import socket
import sys
import tempfile
import time
import unittest

from farverbs_bench import isolation, process
from farverbs_bench.outcome import Failed

TABLE = """  sl  local_address rem_address   st tx_queue rx_queue
   0: 0100007F:1D2F 00000000:0000 0A 00000000:00000000
   1: 0100007F:1D30 0100007F:9999 01 00000000:00000000
"""
BURN = "import time\nwhile time.process_time() < 0.3: pass"


def python(code):
    return [sys.executable, "-c", code]


def runs(pid):
    """A process that nobody has waited for yet does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class Processes(unittest.TestCase):
    def wait_until(self, condition):
        deadline = time.monotonic() + 20
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_output_and_exit_code(self):
        with process.Process(python("import sys; print('out'); sys.exit(3)")) as running:
            result = running.wait(20)
        self.assertEqual((result.exit_code, result.out), (3, "out\n"))

    def test_cpu_seconds_are_the_childs(self):
        burnt = process.run(python(BURN), 60).cpu_seconds
        self.assertGreaterEqual(burnt, 0.3)
        self.assertLess(burnt, 3)

    def test_what_fails_says_its_last_words(self):
        with self.assertRaisesRegex(Failed, "exit code 1: no such device"):
            process.run(python("raise SystemExit('no such device')"), 20)

    def test_what_hangs_is_ended(self):
        began = time.monotonic()
        with process.Process(python("import time; time.sleep(60)")) as running:
            with self.assertRaisesRegex(Failed, "did not end"):
                running.wait(0.2)
            pid = running.pid
        self.assertLess(time.monotonic() - began, 20)
        with self.assertRaises(ProcessLookupError):
            os.kill(pid, 0)

    def test_nothing_outlives_the_block(self):
        with tempfile.NamedTemporaryFile("r") as file:
            command = f"sleep 60 & echo $! >{file.name}; wait"
            with process.Process(["sh", "-c", command]):
                self.wait_until(lambda: os.path.getsize(file.name) > 0)
            pid = int(file.read())
        self.wait_until(lambda: not runs(pid))

    def test_a_signal_reaches_it(self):
        with process.Process(python("import time; time.sleep(60)")) as running:
            running.signal(signal.SIGTERM)
            self.assertEqual(running.wait(20).exit_code, -signal.SIGTERM)

    def test_a_missing_program_is_a_failure(self):
        with self.assertRaisesRegex(Failed, "cannot start"):
            process.run(["farverbs-no-such-program"], 1)

    def test_listening_ports(self):
        self.assertEqual(process.listening_ports(TABLE), {0x1D2F})

    def test_a_port_is_waited_for(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        code = (f"import socket, time; time.sleep(0.2); s = socket.create_server(('127.0.0.1', "
                f"{port})); time.sleep(60)")
        with process.Process(python(code)) as running:
            running.wait_for_port(port)
            socket.create_connection(("127.0.0.1", port), 5).close()

    def test_a_server_that_dies_is_told_of(self):
        with process.Process(python("raise SystemExit('address in use')")) as running:
            with self.assertRaisesRegex(Failed, "address in use"):
                running.wait_for_port(1)


class Placement(unittest.TestCase):
    def test_each_end_has_a_processor_of_its_own(self):
        self.assertEqual(isolation.place("two", {5, 3, 4}), ({3}, {4}))
        self.assertEqual(isolation.place("one", {5, 3}), ({3}, {3}))
        self.assertEqual(isolation.place("free", {5, 3}), (None, None))
        self.assertEqual(isolation.place("two", {3}), (None, None))

    def test_a_program_stays_where_it_is_put(self):
        cpu = min(os.sched_getaffinity(0))
        code = "import os; print(sorted(os.sched_getaffinity(0)))"
        self.assertEqual(process.run(python(code), 10, cpus={cpu}).out.strip(), f"[{cpu}]")


class Memory(unittest.TestCase):
    def test_available_memory(self):
        self.assertEqual(isolation.available_memory("MemFree: 1 kB\nMemAvailable:  2048 kB\n"),
                         2 << 20)
        self.assertGreater(isolation.available_memory(), 0)


if __name__ == "__main__":
    unittest.main()
