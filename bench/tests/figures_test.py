"""What programs print, read as figures; nothing missing may become a number."""

import json
import unittest

from farverbs_bench import dropin, ours, yardsticks
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
        self.assertEqual(yardsticks.ucx_figures(UCX)["bits_per_second"], 500 * 1048576 * 8)

    def test_libfabric_counts_in_megabytes(self):
        self.assertEqual(yardsticks.libfabric_bits_per_second(LIBFABRIC), 180.5 * 8e6)

    def test_no_figures_is_a_failure(self):
        for read in (yardsticks.ucx_figures, yardsticks.libfabric_bits_per_second):
            for text in ("", "error: no such device\n", "a b c\n1 2 3\n"):
                with self.assertRaises(Failed, msg=text):
                    read(text)


PERFTEST = """---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 1048576    7000             0.00               19.50              0.002325
---------------------------------------------------------------------------------------
"""
LATENCY = """---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 64      2000          6.12           40.34        6.58     	       7.52        	3.52   		25.36   		36.05
---------------------------------------------------------------------------------------
"""
CMTIME = """step              total ms     max ms     min us  us / conn
create id    :        2.00       0.01       1.00       2.00
bind addr    :        1.00       0.01       1.00       1.00
resolve addr :        3.00       0.01       1.00       3.00
resolve route:        1.00       0.01       1.00       1.00
create qp    :       13.00       0.01       1.00      13.00
connect      :       80.00       0.90      70.00      80.00
disconnect   :       50.00       0.90      70.00      50.00
destroy      :        5.00       0.01       1.00       5.00
"""
RSTREAM = """name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer
custom    1m      1k      1       1g          0.50s     16.78     500.00
"""


class DropIn(unittest.TestCase):
    def test_perftest_columns_have_names_of_several_words(self):
        row = dropin.perftest_row(PERFTEST)
        self.assertEqual(row["BW average[Gb/sec]"], 19.5)
        self.assertEqual(dropin.perftest_row(LATENCY)["t_typical[usec]"], 6.58)

    def test_connections_count_all_steps_but_the_end(self):
        self.assertAlmostEqual(dropin.connection_seconds(CMTIME), 0.1)
        unbound = "".join(line for line in CMTIME.splitlines(True) if "bind" not in line)
        self.assertAlmostEqual(dropin.connection_seconds(unbound), 0.099)

    def test_rstream_counts_in_gigabits(self):
        self.assertAlmostEqual(dropin.stream_bits_per_second(RSTREAM), 16.78e9, places=0)

    def test_no_figures_is_a_failure(self):
        for read in (dropin.perftest_row, dropin.connection_seconds, dropin.stream_bits_per_second):
            for text in ("", "failed to connect\n", "a b c\n1 2 3\n"):
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
