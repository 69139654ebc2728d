"""The table and the history line, word by word."""

import json
import os
import tempfile
import unittest

from farverbs_bench import history, main, report, rows

ROW = rows.Row("w", "WRITE / TCP", "mine", ("tcp",), rows.BITS, 1.0, 1.2)
DONE = rows.Outcome(ROW, rows.OK, values=(1.2, 1.3, 1.1), ours=(20e9, 21e9, 19e9),
                    theirs=(10e9, 11e9, 12e9), chosen=("tcp",))
LEFT = rows.Outcome(ROW, rows.SKIPPED, "x is not installed: apt-get install x")
CONTEXT = rows.Outcome(rows.Row("c", "c", "mine", ("tcp",), rows.BITS), rows.CONTEXT, values=(2.0,),
                       ours=(2e9,), theirs=(1e9,), chosen=("tcp",))
MACHINE = {"date": "2000-01-01T00:00:00Z", "commit": "abc", "kernel": "6.1", "cpu": "some",
           "cores": 2, "load": 0.1}


class Numbers(unittest.TestCase):
    def test_three_digits(self):
        for value, expected in ((0, "0"), (0.01234, "0.012"), (1.2345, "1.23"), (12.345, "12.3"),
                                (1234.5, "1,234"), (-2.5, "-2.50")):
            self.assertEqual(report.number(value), expected)

    def test_units(self):
        for value, metric, expected in (
                (18.2e9, rows.BITS, "18.2 Gb/s"), (182e6, rows.BITS, "182 Mb/s"),
                (0.5, rows.CPU, "0.500 s/GB"), (12.5, rows.P50, "12.5 us"),
                (4.6e6, rows.RATE, "4.60 M/s"), (1500, "bytes_per_qp", "1,500 B")):
            self.assertEqual(report.quantity(value, metric), expected)


class Markdown(unittest.TestCase):
    def test_a_row_tells_all(self):
        line = report.table([DONE]).splitlines()[2]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        self.assertEqual(cells, ["WRITE / TCP", "1.20 (1.10..1.30)", "≥ 1", "≥ 1.2", "ok",
                                 "20.0 Gb/s", "11.0 Gb/s (tcp)"])

    def test_what_was_skipped_is_loud(self):
        self.assertIn("**skipped: x is not installed: apt-get install x**", report.table([LEFT]))

    def test_columns_line_up(self):
        lengths = {len(line) for line in report.table([DONE, LEFT, CONTEXT]).splitlines()}
        self.assertEqual(len(lengths), 1)

    def test_no_reason_breaks_the_table(self):
        broken = rows.Outcome(ROW, rows.FAILED, "a | b\nc")
        self.assertEqual(len(report.table([broken]).splitlines()), 3)
        self.assertNotIn("a | b", report.table([broken]))

    def test_summary_leaves_context_out(self):
        self.assertEqual(report.summary([DONE, LEFT, CONTEXT]),
                         "1 reached, 0 below aim, 0 missed, 1 skipped")
        self.assertTrue(report.summary([rows.Outcome(ROW, rows.FAILED, "x")]).endswith(
            "1 FAILED to run"))

    def test_the_heading_tells_where_the_ends_ran(self):
        self.assertIn("on one processor",
                      report.heading({**MACHINE, "place": "one"}, 5, 2, False))

    def test_a_loaded_machine_is_told_of(self):
        self.assertNotIn("load", report.heading(MACHINE, 5, 2, False))
        self.assertIn("**The load was 9", report.heading({**MACHINE, "load": 9}, 5, 2, False))


class History(unittest.TestCase):
    def test_a_run_is_a_line(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "history.jsonl")
            for _ in range(2):
                history.append(path, history.record([DONE, LEFT], MACHINE, 3, 2.0))
            with open(path, encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
        self.assertEqual(len(lines), 2)
        self.assertEqual(lines[0]["rows"]["w"]["verdict"], rows.SKIPPED)  # the last of one key
        self.assertEqual(lines[0]["commit"], "abc")

    def test_a_row_holds_what_the_table_shows(self):
        row = history.record([DONE], MACHINE, 3, 2.0)["rows"]["w"]
        self.assertEqual(row, {"verdict": "ok", "median": 1.2, "min": 1.1, "max": 1.3,
                               "ours": 20e9, "theirs": 11e9, "yardsticks": ["tcp"]})

    def test_cpu_model(self):
        self.assertEqual(history.cpu_model("processor : 0\nmodel name\t: Some CPU\n"), "Some CPU")
        self.assertTrue(history.cpu_model(""))


class Options(unittest.TestCase):
    def test_defaults(self):
        full, quick = main.parse_arguments([]), main.parse_arguments(["--quick"])
        self.assertEqual((full.rounds, full.seconds), (5, 2.0))
        self.assertEqual((quick.rounds, quick.seconds), (1, 0.4))

    def test_quick_yields_to_what_is_said(self):
        arguments = main.parse_arguments(["--quick", "--rounds", "3", "--seconds", "1"])
        self.assertEqual((arguments.rounds, arguments.seconds), (3, 1.0))

    def test_only_looks_at_keys_and_words(self):
        select = lambda text: [row.key for row in main.select_rows(
            main.parse_arguments(["--only", text]).only)]
        self.assertEqual(select("^write$"), ["write"])
        self.assertIn("libfabric", select("ofi_rxd"))
        self.assertEqual(select("nothing like it"), [])


if __name__ == "__main__":
    unittest.main()
