#!/usr/bin/env python3
"""The project's own lint: what compilers do not check. Every finding names what to do instead.

    lint.py [--root DIRECTORY]

Prints "file:line: rule: message"; exits 1 if there is an error. Warnings (lengths) are printed and
do not fail. A line that ends in "// lint: allow <rule>, <why>" is exempt from that rule.
"""

import argparse
import os
import re
import subprocess
import sys
from collections import namedtuple

Finding = namedtuple("Finding", "path line rule message is_error")

# A file includes its own room and rooms of lower rows, and only those its CMakeLists.txt links.
ROWS = {
    "base": 0,
    "wire": 1,
    "model": 2, "cc": 2, "crypto": 2,
    "io": 3, "proto": 3,
    "engine": 4,
    "verbs": 5, "sim": 5,
    "abi": 6,
}
CPP_SUFFIXES = (".h", ".cc")
TEXT_SUFFIXES = CPP_SUFFIXES + (".py", ".sh", ".md", ".cmake", ".txt", ".json", ".yml", ".yaml", "")
MAX_COLUMNS = 100
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70

# Files that may be long, each with its reason.
LONG_FILES = {}

Ban = namedtuple("Ban", "rule pattern message applies")


def is_library(path):
    """Production code of the rooms; tests, benchmarks and fuzzers may do more."""
    return path.startswith("src/farverbs/") and not is_test(path)


def is_test(path):
    stem = os.path.splitext(path)[0]
    return stem.endswith(("_test", "_bench", "_fuzz", "test_support", "_testing")) or path.startswith("tests/")


def in_rooms(*rooms):
    prefixes = tuple(f"src/farverbs/{room}/" for room in rooms)
    return lambda path: path.startswith(prefixes) and not is_test(path)


def may_read_clocks(path):
    """What waits for the operating system, and the programs; everything else is given the time."""
    name = os.path.basename(path)
    return (path.startswith(("src/tools/", "src/farverbs/io/", "src/farverbs/verbs/", "src/farverbs/abi/",
                             "examples/", "bench/"))
            or (path.startswith("src/farverbs/engine/") and "os" in re.split(r"[_.]", name))
            or is_test(path))


def is_chance_source(path):
    return re.search(r"prng|entropy", os.path.basename(path)) is not None


BANS = [
    Ban("assert", re.compile(r"(?<![\w.])assert\s*\("),
        "use FV_CHECK for a bug of ours, a Drop or a NAK for what a peer sent",
        lambda path: path.endswith(CPP_SUFFIXES)),
    Ban("assert", re.compile(r"#\s*include\s*<cassert>"),
        "use FV_CHECK of farverbs/base/check.h", lambda path: True),
    Ban("clock", re.compile(r"\b(steady_clock|system_clock|high_resolution_clock)\b|"
                            r"\b(clock_gettime|gettimeofday)\s*\("),
        "take `Time now` as the first parameter; only io and the engine's OS files read a clock",
        lambda path: path.startswith("src/") and not may_read_clocks(path)),
    Ban("chance", re.compile(r"\brandom_device\b|\bmt19937|(?<![\w.])s?rand\s*\(|\bgetrandom\s*\("),
        "take a Prng (reproducible) or an Entropy (secret) from the caller",
        lambda path: path.startswith("src/") and not is_chance_source(path)),
    Ban("iostream", re.compile(r"#\s*include\s*<(iostream|iomanip)>"),
        "use fmt", lambda path: path.startswith("src/") and not is_test(path)),
    Ban("bit-field", re.compile(r"^\s*(u?int\d*(_t)?|unsigned|std::u?int\d+_t|bool)\s+\w+\s*:\s*\d+\s*[;,={]"),
        "declare a constexpr Field{byte, bit, width}; the order of host bit-fields is the compiler's",
        in_rooms("wire")),
    Ban("throw", re.compile(r"(?<!\w)throw\b(?!\()"),
        "return a Result; the rooms below the tools use no exceptions", is_library),
    Ban("function", re.compile(r"\bstd::function\b"),
        "use a template parameter, a plain pointer with context, or an interface at a seam: "
        "std::function may allocate per packet",
        in_rooms("base", "wire", "model", "cc", "crypto", "proto", "io", "engine")),
    Ban("volatile", re.compile(r"\bvolatile\b(?!\s*\()"),
        "use std::atomic; volatile orders nothing between threads",
        lambda path: is_library(path)),
    Ban("using-namespace", re.compile(r"^using\s+namespace\b"),
        "name what is used; a header's using-directive reaches all who include it", lambda path: path.endswith(".h")),
]

# What belongs to a workplace and not to the project. Written in pieces so that this file passes.
FORBIDDEN_WORDS = re.compile(
    r"(?<![\w.])/" + r"work/|/far" + r"m/|sub-?" + r"agent|\.\./" + r"shared|/ro" + r"ot/", re.IGNORECASE)


def without_comments_and_strings(text):
    """The same text with comments and literals blanked, line structure kept."""
    pattern = re.compile(
        r"//[^\n]*|/\*.*?\*/|R\"(?P<tag>[^()\s]*)\(.*?\)(?P=tag)\"|\"(?:\\.|[^\"\\\n])*\"|"
        r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.DOTALL)

    def blank(match):
        found = match.group(0)
        if found.startswith("/"):
            return re.sub(r"[^\n]", " ", found)
        return found[0] + re.sub(r"[^\n]", " ", found[1:-1]) + found[-1]

    # Includes keep their quoted path.
    lines = []
    for line in text.split("\n"):
        lines.append(line)
    kept = {i: line for i, line in enumerate(lines) if re.match(r"\s*#\s*include", line)}
    blanked = pattern.sub(blank, text).split("\n")
    for i, line in kept.items():
        if blanked[i].strip():
            blanked[i] = line
    return "\n".join(blanked)


def room_of(path):
    match = re.match(r"src/farverbs/(\w+)/", path)
    return match.group(1) if match else None


def linked_rooms(cmake_text):
    """(rooms a library links, rooms its tests link as well) of a farverbs_room(...) call."""
    text = re.sub(r"#[^\n]*", "", cmake_text)
    rooms, test_rooms = set(), set()
    for call in re.findall(r"farverbs_(?:room|tests|drop_in)\s*\((.*?)\)", text, re.DOTALL):
        key = None
        for word in call.split():
            if word in ("SOURCES", "ROOMS", "LIBRARIES", "TEST_ROOMS"):
                key = word
            elif key == "ROOMS":
                rooms.add(word)
            elif key == "TEST_ROOMS":
                test_rooms.add(word)
    return rooms, test_rooms


class Lint:
    """One run over a source tree. `read` gives a file's text by its path below the root."""

    def __init__(self, paths, read):
        self.paths = sorted(paths)
        self.read = read
        self.findings = []
        self.links = self.read_links()

    def read_links(self):
        direct, test_direct = {}, {}
        for path in self.paths:
            # A room may have folders, each with a library of its own.
            match = re.fullmatch(r"src/farverbs/(\w+)(?:/\w+)?/CMakeLists.txt", path)
            if match:
                rooms, test_rooms = linked_rooms(self.read(path))
                direct.setdefault(match.group(1), set()).update(rooms)
                test_direct.setdefault(match.group(1), set()).update(test_rooms)
        # A library passes on what it links.
        def reach(rooms):
            reached, queue = set(), list(rooms)
            while queue:
                room = queue.pop()
                if room not in reached:
                    reached.add(room)
                    queue += direct.get(room, ())
            return reached
        return {room: (reach(rooms), reach(rooms | test_direct[room]))
                for room, rooms in direct.items()}

    def report(self, path, line, rule, message, is_error=True):
        self.findings.append(Finding(path, line, rule, message, is_error))

    def run(self):
        for path in self.paths:
            if os.path.splitext(path)[1] not in TEXT_SUFFIXES or path.startswith("LICENSE"):
                continue
            text = self.read(path)
            if text is None:
                continue
            self.check_words(path, text)
            if path.endswith(CPP_SUFFIXES):
                self.check_cpp(path, text)
        return self.findings

    def check_words(self, path, text):
        for number, line in enumerate(text.split("\n"), 1):
            if FORBIDDEN_WORDS.search(line):
                self.report(path, number, "words",
                            "names a place or a person of one workplace; say it in the project's terms")

    def check_cpp(self, path, text):
        lines = text.split("\n")
        code = without_comments_and_strings(text).split("\n")
        self.check_lines(path, lines)
        self.check_bans(path, lines, code)
        self.check_includes(path, lines, code)
        self.check_functions(path, code)
        if path.endswith(".h"):
            self.check_header(path, text)
        if len(lines) - 1 > MAX_FILE_LINES and path not in LONG_FILES:
            self.report(path, len(lines) - 1, "file-length",
                        f"{len(lines) - 1} lines (look hard at {MAX_FILE_LINES}): are there two rooms "
                        "in one? If not, add it to LONG_FILES with the reason", is_error=False)

    def check_lines(self, path, lines):
        for number, line in enumerate(lines, 1):
            if "\t" in line:
                self.report(path, number, "tab", "use spaces")
            # An address or a sample in a raw string cannot be broken.
            breakable = "http" not in line and 'R"(' not in line
            if len(line) > MAX_COLUMNS and breakable:
                self.report(path, number, "columns", f"{len(line)} columns; {MAX_COLUMNS} is the limit")

    def check_bans(self, path, lines, code):
        for ban in BANS:
            if not ban.applies(path):
                continue
            for number, (line, original) in enumerate(zip(code, lines), 1):
                if ban.pattern.search(line) and not self.is_allowed(original, ban.rule):
                    self.report(path, number, ban.rule, ban.message)

    @staticmethod
    def is_allowed(line, rule):
        # An exemption without a reason is none.
        return re.search(r"//\s*lint: allow " + re.escape(rule) + r",\s*\S", line) is not None

    def check_includes(self, path, lines, code):
        own = room_of(path)
        for number, line in enumerate(code, 1):
            match = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
            if not match:
                continue
            target = match.group(1)
            if not target.startswith(("farverbs/", "tools/", "bench/", "tests/")):
                self.report(path, number, "include", f'write "{target}" from src/: "farverbs/<room>/..."')
                continue
            other = target.split("/")[1] if target.startswith("farverbs/") else None
            if own is None:
                continue
            if other is None:
                self.report(path, number, "include", f"a room must not include {target}")
            elif other != own:
                self.check_room(path, number, own, other)

    def check_room(self, path, number, own, other):
        if own not in ROWS or other not in ROWS:
            unknown = own if own not in ROWS else other
            self.report(path, number, "include", f"room {unknown} is in no row; add it to ROWS")
            return
        if is_test(path) and other in self.links.get(own, (set(), set()))[1]:
            return
        if ROWS[other] >= ROWS[own]:
            self.report(path, number, "include",
                        f"{own} must not include {other}: only rooms of lower rows "
                        "(see the room diagram of ARCHITECTURE.md)")
        elif own in self.links and other not in self.links[own][0]:
            self.report(path, number, "include",
                        f"{own} includes {other} without linking it: add it to ROOMS in "
                        f"src/farverbs/{own}/CMakeLists.txt")

    def check_functions(self, path, code):
        """A function is a line that ends in ") ... {" and does not open a type or a block."""
        depth, began = 0, None
        for number, line in enumerate(code, 1):
            opens = re.match(r"^\s*\S.*\)[^;{}]*\{\s*$", line) and not re.match(
                r"\s*(namespace|class|struct|enum|union|if|for|while|switch|else|do|extern)\b", line)
            if began is None and opens:
                began = (number, depth)
            depth += line.count("{") - line.count("}")
            if began is not None and depth <= began[1]:
                length = number - began[0] + 1
                if length > MAX_FUNCTION_LINES:
                    self.report(path, began[0], "function-length",
                                f"a function of {length} lines (aim below {MAX_FUNCTION_LINES}): name "
                                "its steps", is_error=False)
                began = None

    def check_header(self, path, text):
        if not text.startswith("//"):
            self.report(path, 1, "header", "open with a paragraph: what this is, which specification")
        if not re.search(r"^#pragma once$", text, re.MULTILINE):
            self.report(path, 1, "header", "add #pragma once")


def tracked_files(root):
    listed = subprocess.run(
        ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True, capture_output=True).stdout.decode()
    return [path for path in listed.split("\0")
            if path and os.path.isfile(os.path.join(root, path))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--root", default=os.path.join(os.path.dirname(__file__), "..", ".."))
    root = os.path.abspath(parser.parse_args().root)

    def read(path):
        try:
            with open(os.path.join(root, path), encoding="utf-8") as file:
                return file.read()
        except UnicodeDecodeError:
            return None

    findings = Lint(tracked_files(root), read).run()
    for finding in findings:
        kind = "" if finding.is_error else "warning: "
        print(f"{finding.path}:{finding.line}: {kind}{finding.rule}: {finding.message}")
    errors = sum(finding.is_error for finding in findings)
    print(f"lint: {errors} errors, {len(findings) - errors} warnings")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
