"""What programs print, read as figures; nothing missing may become a number."""

import json
import unittest

from farverbs_bench import ours, yardsticks
from farverbs_bench.outcome import Failed

IPERF = {"end": {"sum_received": {"bytes": 4e9, "bits_per_second": 16e9}}}
PERF = {"bits_per_second": 16e9, "messages_per_second": 2000, "seconds": 2, "path_mtu": 1024,
        "cpu": {"seconds_per_gb": 0.5}, "retransmitted_packets": {"client": 1, "server": 2}}
UCX = """iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
 300,0.160,2690.771,1390.097,3.72,500.00,4,72
"""
LIBFABRIC = """bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
1m      100     =100     200m       1.16s    180.50     5809.3       0.00
"""


class Json(unittest.TestCase):
    def test_figure_follows_the_path(self):
        self.assertEqual(yardsticks.figure({"a": {"b": 3}}, "a", "b"), 3.0)

    def test_figure_is_never_made_up(self):
        for value in ({}, {"a": {}}, {"a": 3}, {"a": {"b": "3"}}, {"a": {"b": True}},
                      {"a": {"b": None}}):
            with self.assertRaises(Failed, msg=value):
                yardsticks.figure(value, "a", "b")

    def test_what_is_no_object_fails(self):
        for text in ("", "nonsense", "[1]"):
            with self.assertRaises(Failed, msg=text):
                yardsticks.parse_json(text, "program")


class Yardsticks(unittest.TestCase):
    def test_iperf3_counts_what_was_received(self):
        figures = yardsticks.iperf3_figures(json.dumps(IPERF), 2.0)
        self.assertEqual(figures["bits_per_second"], 16e9)
        self.assertEqual(figures["cpu_seconds_per_gb"], 0.5)

    def test_iperf3_says_what_went_wrong(self):
        with self.assertRaisesRegex(Failed, "unable to connect"):
            yardsticks.iperf3_figures('{"error": "unable to connect"}', 1.0)

    def test_ucx_counts_in_mebibytes_of_the_whole_run(self):
        self.assertEqual(yardsticks.ucx_bits_per_second(UCX), 500 * 1048576 * 8)

    def test_libfabric_counts_in_megabytes(self):
        self.assertEqual(yardsticks.libfabric_bits_per_second(LIBFABRIC), 180.5 * 8e6)

    def test_no_figures_is_a_failure(self):
        for read in (yardsticks.ucx_bits_per_second, yardsticks.libfabric_bits_per_second):
            for text in ("", "error: no such device\n", "a b c\n1 2 3\n"):
                with self.assertRaises(Failed, msg=text):
                    read(text)


class Ours(unittest.TestCase):
    def test_cpu_is_divided_by_payload(self):
        figures = ours.bandwidth_figures(PERF, cpu_seconds=2.0)
        self.assertEqual(figures["bytes"], 4e9)
        self.assertEqual(figures["cpu_seconds_per_gb"], 0.5)
        self.assertEqual(figures["retransmitted_packets"], 3)

    def test_nothing_moved_is_a_failure(self):
        with self.assertRaises(Failed):
            ours.bandwidth_figures({**PERF, "bits_per_second": 0})

    def test_capacity_is_the_payload_share_of_full_frames(self):
        # 1024 bytes of payload in an IP packet of 1068, which costs 1106 bytes of the link.
        self.assertAlmostEqual(ours.payload_capacity(200e6, 1024), 200e6 * 1024 / 1106)

    def test_lab_takes_the_path_mtu_that_was_used(self):
        figures = ours.lab_figures({**PERF, "path_mtu": 512})
        self.assertAlmostEqual(figures["capacity"], 200e6 * 512 / 594)


if __name__ == "__main__":
    unittest.main()
