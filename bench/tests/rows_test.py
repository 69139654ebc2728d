"""What a row concludes from its rounds."""

import unittest

from farverbs_bench import cells, rows
from farverbs_bench.outcome import Failed, Skipped

TCP_ROW = rows.Row("r", "r", "mine", ("cubic", "bbr"), rows.BITS, 1.0, 1.2)
CPU_ROW = rows.Row("c", "c", "mine", ("cubic", "bbr"), rows.CPU, 1.0, 0.8, rows.LESS)
ALONE = rows.Row("a", "a", "mine", (), "bytes_per_qp", 4096, 2048, rows.LESS)


def cell(bits, cpu=1.0):
    return {rows.BITS: bits, rows.CPU: cpu}


class Verdicts(unittest.TestCase):
    def test_more_is_better(self):
        for value, expected in ((1.2, rows.OK), (1.19, rows.BELOW_AIM), (1.0, rows.BELOW_AIM),
                                (0.99, rows.MISSED)):
            self.assertEqual(rows.verdict(TCP_ROW, value), expected, value)

    def test_less_is_better(self):
        for value, expected in ((0.8, rows.OK), (0.81, rows.BELOW_AIM), (1.0, rows.BELOW_AIM),
                                (1.01, rows.MISSED)):
            self.assertEqual(rows.verdict(CPU_ROW, value), expected, value)

    def test_context_has_none(self):
        row = rows.Row("x", "x", "mine", ("cubic",), rows.BITS)
        self.assertEqual(rows.verdict(row, 100), rows.CONTEXT)


class Evaluation(unittest.TestCase):
    def test_the_faster_tcp_of_each_round_counts(self):
        outcome = rows.evaluate(TCP_ROW, [
            {"mine": cell(20), "cubic": cell(10), "bbr": cell(16)},
            {"mine": cell(20), "cubic": cell(40), "bbr": cell(16)},
        ])
        self.assertEqual(outcome.values, (1.25, 0.5))
        self.assertEqual(outcome.chosen, ("bbr", "cubic"))
        self.assertEqual(outcome.median, 0.875)
        self.assertEqual(outcome.verdict, rows.MISSED)

    def test_cpu_is_that_of_the_faster_tcp_not_of_the_cheaper(self):
        outcome = rows.evaluate(CPU_ROW, [
            {"mine": cell(20, 0.5), "cubic": cell(10, 0.1), "bbr": cell(16, 1.0)}])
        self.assertEqual(outcome.values, (0.5,))

    def test_one_tcp_is_enough(self):
        outcome = rows.evaluate(TCP_ROW, [
            {"mine": cell(20), "cubic": cell(10), "bbr": Skipped("no bbr")}])
        self.assertEqual(outcome.values, (2.0,))
        self.assertEqual(outcome.verdict, rows.OK)

    def test_skipped_tells_why(self):
        outcome = rows.evaluate(TCP_ROW, [
            {"mine": cell(20), "cubic": Skipped("no iperf3"), "bbr": Skipped("no iperf3")}])
        self.assertEqual((outcome.verdict, outcome.reason), (rows.SKIPPED, "no iperf3"))
        outcome = rows.evaluate(TCP_ROW, [
            {"mine": Skipped("not built"), "cubic": cell(1), "bbr": cell(1)}])
        self.assertEqual((outcome.verdict, outcome.reason), (rows.SKIPPED, "not built"))

    def test_a_failure_in_one_round_is_not_hidden_by_the_others(self):
        outcome = rows.evaluate(TCP_ROW, [
            {"mine": cell(20), "cubic": cell(10), "bbr": cell(9)},
            {"mine": Failed("crashed"), "cubic": cell(10), "bbr": cell(9)}])
        self.assertEqual((outcome.verdict, outcome.reason), (rows.FAILED, "crashed"))
        self.assertEqual(outcome.values, (2.0,))

    def test_a_yardstick_of_nothing_is_a_failure(self):
        outcome = rows.evaluate(TCP_ROW, [{"mine": cell(20), "cubic": cell(0), "bbr": cell(0)}])
        self.assertEqual(outcome.verdict, rows.FAILED)

    def test_without_a_yardstick_the_figure_is_the_value(self):
        outcome = rows.evaluate(ALONE, [{"mine": {"bytes_per_qp": 1500}}])
        self.assertEqual((outcome.median, outcome.verdict, outcome.chosen), (1500, rows.OK, ()))


class Table(unittest.TestCase):
    def test_every_row_names_cells_that_exist(self):
        for row in rows.ROWS:
            self.assertLessEqual(row.cells(), set(cells.CELLS), row.key)

    def test_every_cell_is_used(self):
        used = set().union(*(row.cells() for row in rows.ROWS))
        self.assertEqual(used, set(cells.CELLS))

    def test_keys_are_unique_and_aims_beyond_what_must_be(self):
        self.assertEqual(len({row.key for row in rows.ROWS}), len(rows.ROWS))
        for row in rows.ROWS:
            if row.must is not None:
                self.assertEqual(row.aim > row.must, row.better == rows.MORE, row.key)

    def test_order_turns_every_other_round(self):
        names = {"write", "tcp-bbr", "tcp-cubic"}
        self.assertEqual(cells.order(names, 0), ["tcp-cubic", "write", "tcp-bbr"])
        self.assertEqual(cells.order(names, 1), ["tcp-bbr", "write", "tcp-cubic"])


if __name__ == "__main__":
    unittest.main()
