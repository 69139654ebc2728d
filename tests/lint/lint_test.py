"""Tests of the lint: a bad sample must be flagged, its good twin must not."""

import unittest

from lint import Lint

HEADER = "// What it is.\n#pragma once\n"
LINKS = {
    "src/farverbs/base/CMakeLists.txt": "farverbs_room(base SOURCES a.cc)",
    "src/farverbs/wire/CMakeLists.txt": "farverbs_room(wire SOURCES a.cc ROOMS base)",
    "src/farverbs/model/CMakeLists.txt": "farverbs_room(model SOURCES a.cc ROOMS wire TEST_ROOMS cc)",
    "src/farverbs/cc/CMakeLists.txt": "farverbs_room(cc SOURCES a.cc ROOMS base)",
}


def lint(path, text):
    files = dict(LINKS)
    files[path] = text
    return Lint(files, files.get).run()


def rules(path, text):
    return [finding.rule for finding in lint(path, text)]


class Bans(unittest.TestCase):
    def flagged(self, rule, path, bad, good):
        self.assertEqual(rules(path, bad + "\n"), [rule], bad)
        self.assertEqual(rules(path, good + "\n"), [], good)

    def test_each_ban_has_a_bad_and_a_good_sample(self):
        wire, model = "src/farverbs/wire/a.cc", "src/farverbs/model/a.cc"
        self.flagged("assert", wire, "assert(size > 0);", "static_assert(sizeof(x) > 0);")
        self.flagged("assert", wire, "#include <cassert>", "#include <cstdint>")
        self.flagged("clock", model, "auto t = std::chrono::steady_clock::now();", "auto t = now;")
        self.flagged("clock", model, "clock_gettime(CLOCK_REALTIME, &t);", "on_packet(now, packet);")
        self.flagged("chance", model, "std::random_device device;", "prng.next();")
        self.flagged("chance", model, "int x = rand();", "int x = brand();")
        self.flagged("iostream", model, "#include <iostream>", "#include <fmt/format.h>")
        self.flagged("bit-field", wire, "  uint8_t version : 4;", "  case kVersion: return 4;")
        self.flagged("throw", model, "  throw Error();", "  // we throw nothing")
        self.flagged("function", model, "std::function<void()> f;", "void (*f)(void*);")
        self.flagged("volatile", model, "volatile int x;", 'asm volatile("pause");')
        self.flagged("using-namespace", "src/farverbs/wire/a.h", HEADER + "using namespace std;",
                     HEADER + "using std::span;")

    def test_clocks_are_read_at_the_operating_system(self):
        line = "auto t = std::chrono::steady_clock::now();\n"
        for path in ("src/farverbs/io/udp_port.cc", "src/farverbs/engine/os_clock.cc",
                     "src/tools/perf/perf.cc", "src/farverbs/wire/icrc_bench.cc"):
            self.assertEqual(rules(path, line), [], path)
        self.assertEqual(rules("src/farverbs/engine/cosmos.cc", line), ["clock"])

    def test_comments_and_strings_are_no_code(self):
        self.assertEqual(rules("src/farverbs/wire/a.cc", '// assert(x)\nauto s = "assert(x)";\n'), [])
        self.assertEqual(rules("src/farverbs/wire/a.cc", "/* throw\n throw */\nint x = 1'000'000;\n"), [])
        self.assertEqual(rules("src/farverbs/wire/a.cc", "int x = 1'000; assert(x); int y = 2'000;\n"),
                         ["assert"])

    def test_an_exemption_needs_a_reason(self):
        code = "volatile int x;  // lint: allow volatile"
        self.assertEqual(rules("src/farverbs/io/a.cc", code + ", the kernel writes it\n"), [])
        self.assertEqual(rules("src/farverbs/io/a.cc", code + "\n"), ["volatile"])
        self.assertEqual(rules("src/farverbs/io/a.cc", code + ",\n"), ["volatile"])


class Includes(unittest.TestCase):
    def test_lower_linked_room(self):
        self.assertEqual(rules("src/farverbs/wire/a.cc", '#include "farverbs/base/check.h"\n'), [])
        # Linked through wire.
        self.assertEqual(rules("src/farverbs/model/a.cc", '#include "farverbs/base/check.h"\n'), [])

    def test_higher_room(self):
        self.assertEqual(rules("src/farverbs/base/a.h", HEADER + '#include "farverbs/wire/bth.h"\n'),
                         ["include"])

    def test_sideways(self):
        found = lint("src/farverbs/model/a.cc", '#include "farverbs/cc/bbr.h"\n')
        self.assertIn("must not include", found[0].message)

    def test_sideways_in_a_test_that_links_it(self):
        self.assertEqual(rules("src/farverbs/model/a_test.cc", '#include "farverbs/cc/bbr.h"\n'), [])

    def test_lower_room_that_is_not_linked(self):
        found = lint("src/farverbs/cc/a.cc", '#include "farverbs/wire/bth.h"\n')
        self.assertIn("without linking", found[0].message)

    def test_unknown_room(self):
        self.assertEqual(rules("src/farverbs/attic/a.cc", '#include "farverbs/base/check.h"\n'),
                         ["include"])

    def test_room_that_includes_a_tool(self):
        self.assertEqual(rules("src/farverbs/wire/a.cc", '#include "tools/lab/lab.h"\n'), ["include"])

    def test_path_relative_to_the_file(self):
        self.assertEqual(rules("src/farverbs/wire/a.cc", '#include "bth.h"\n'), ["include"])


class Shape(unittest.TestCase):
    def test_tab_and_width(self):
        self.assertEqual(rules("src/farverbs/wire/a.cc", "\tint x;\n"), ["tab"])
        self.assertEqual(rules("src/farverbs/wire/a.cc", "int " + "x" * 97 + ";\n"), ["columns"])
        self.assertEqual(rules("src/farverbs/wire/a.cc", "int " + "x" * 95 + ";\n"), [])

    def test_header(self):
        self.assertEqual(rules("src/farverbs/wire/a.h", HEADER), [])
        self.assertEqual(rules("src/farverbs/wire/a.h", "#pragma once\n"), ["header"])
        self.assertEqual(rules("src/farverbs/wire/a.h", "// What it is.\n"), ["header"])

    def test_long_file_warns(self):
        found = lint("src/farverbs/wire/a.cc", "int x;\n" * 601)
        self.assertEqual([(f.rule, f.is_error) for f in found], [("file-length", False)])
        self.assertEqual(lint("src/farverbs/wire/a.cc", "int x;\n" * 600), [])

    def test_long_function_warns(self):
        def function(lines):
            body = "  if (a) {\n    a += b;\n  }\n" + "  a += b;\n" * (lines - 5)
            return "int f(int a,\n      int b) {\n" + body + "}\n"
        found = lint("src/farverbs/wire/a.cc", function(71))
        self.assertEqual([(f.rule, f.is_error, f.line) for f in found], [("function-length", False, 2)])
        self.assertEqual(lint("src/farverbs/wire/a.cc", function(70)), [])

    def test_words_of_a_workplace(self):
        self.assertEqual(rules("README.md", "see /wo" + "rk/notes\n"), ["words"])
        self.assertEqual(rules("README.md", "the framework/notes and network/path\n"), [])


if __name__ == "__main__":
    unittest.main()
