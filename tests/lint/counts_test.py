"""Tests of the counting: nothing that failed or was skipped may be called passed."""

import io
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "scripts", "dev.d"))
import counts  # pylint: disable=wrong-import-position

GTEST = """<testsuites><testsuite name="S">
<testcase name="good" status="run" result="completed" classname="S"/>
<testcase name="bad" status="run" result="completed" classname="S">
  <failure message="a.cc:3&#x0A;Expected 1, got 2"/></testcase>
<testcase name="left" status="run" result="skipped" classname="S">
  <skipped message="a.cc:9&#x0A;needs root"/></testcase>
<testcase name="DISABLED_off" status="notrun" result="suppressed" classname="S"/>
</testsuite></testsuites>"""


def junit(*cases):
    body = "".join(f'<testcase name="{name}" status="{status}"><system-out>{output}</system-out>'
                   "</testcase>" for name, status, output in cases)
    return f"<testsuite>{body}</testsuite>"


class Counts(unittest.TestCase):
    def count(self, files, steps=()):
        with tempfile.TemporaryDirectory() as directory:
            for name, text in files.items():
                with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
                    file.write(text)
            out = io.StringIO()
            code = counts.count([directory], steps, out)
            return code, out.getvalue().splitlines()

    def test_cases_of_a_binary_count_one_by_one(self):
        code, lines = self.count({"ctest.junit": junit(("unit", "fail", "x")), "unit.xml": GTEST})
        self.assertEqual(code, 1)
        self.assertEqual(lines[-1], "1 passed, 1 failed, 2 skipped")
        self.assertTrue(any("S.left: needs root" in line for line in lines))
        self.assertTrue(any("S.bad: a.cc:3 | Expected 1, got 2" in line for line in lines))

    def test_other_programs_count_once(self):
        code, lines = self.count({"ctest.junit": junit(("lint", "run", ""), ("net", "notrun", "needs TUN"))})
        self.assertEqual(code, 0)
        self.assertEqual(lines[-1], "1 passed, 0 failed, 1 skipped")
        self.assertIn("net: needs TUN", lines[0])

    def test_a_binary_that_died_failed(self):
        code, lines = self.count({"ctest.junit": junit(("unit", "fail", "Segmentation fault"))})
        self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed, 0 skipped"))

    def test_a_binary_that_failed_after_its_cases_failed(self):
        passed = GTEST.replace('<failure message="a.cc:3&#x0A;Expected 1, got 2"/>', "")
        code, lines = self.count({"ctest.junit": junit(("unit", "fail", "leak")), "unit.xml": passed})
        self.assertEqual((code, lines[-1]), (1, "2 passed, 1 failed, 2 skipped"))

    def test_no_results_is_a_failure(self):
        self.assertEqual(self.count({})[0], 1)
        self.assertEqual(self.count({"ctest.junit": junit()})[0], 1)

    def test_steps(self):
        files = {"ctest.junit": junit(("lint", "run", ""))}
        self.assertEqual(self.count(files, [("sim", "ok")])[1][-1], "2 passed, 0 failed, 0 skipped")
        self.assertEqual(self.count(files, [("sim", "FAILED")])[0], 1)


if __name__ == "__main__":
    unittest.main()
