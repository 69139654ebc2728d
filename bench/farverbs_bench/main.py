"""Options, the rounds, what is printed and kept."""

import argparse
import json
import os
import re
import signal
import sys
import tempfile
import time

from . import cells, history, isolation, report, rows
from .context import ROOT, Context
from .outcome import Failed, Refused, Skipped

HISTORY = os.path.join(ROOT, "bench", "history.jsonl")
EPILOG = """The table goes to standard output, progress to standard error. Exit codes: 0 everything
ran, whatever it reached; 1 a program failed or it was interrupted; 2 nothing can be measured here."""


def positive(kind, least):
    def parse(text):
        value = kind(text)
        if not least <= value <= 3600:
            raise argparse.ArgumentTypeError(f"{text} is outside {least} to 3600")
        return value
    return parse


def pattern(text):
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"no regular expression: {error}")


def parse_arguments(words):
    parser = argparse.ArgumentParser(
        prog="bench/run", epilog=EPILOG,
        description="Measures Farverbs against TCP, bare sockets, UCX and libfabric over veth "
                    "between two network namespaces, and prints a table of ratios.")
    parser.add_argument("--quick", action="store_true",
                        help="one short round: whether everything runs, not how fast")
    parser.add_argument("--only", type=pattern, metavar="REGEX",
                        help="rows whose key or words match; see --list")
    parser.add_argument("--list", action="store_true", help="print the keys of the rows and end")
    parser.add_argument("--rounds", type=positive(int, 1), help="default: 5, quick: 1")
    parser.add_argument("--seconds", type=positive(float, 0.1),
                        help="of each measurement; default: 2, quick: 0.4")
    parser.add_argument("--json", metavar="FILE", help="write every figure of every round")
    parser.add_argument("--record", action="store_true",
                        help="append to bench/history.jsonl, which full runs of all rows do anyway")
    parser.add_argument("--place", choices=("two", "one", "free"), default="two",
                        help="the processors of a pair's ends, ours and yardsticks alike: two "
                             "different ones (default), one for both, or as the kernel likes")
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"), metavar="DIR",
                        help="the build that is measured; default: build/release")
    arguments = parser.parse_args(words)
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 5)
    arguments.seconds = arguments.seconds or (0.4 if arguments.quick else 2.0)
    return arguments


def select_rows(only):
    if only is None:
        return list(rows.ROWS)
    return [row for row in rows.ROWS if only.search(row.key) or only.search(row.what)]


def say(text):
    print(text, file=sys.stderr, flush=True)


def measure(name, context):
    """A cell's figures, or the exception that came instead of them."""
    began = time.monotonic()
    try:
        try:
            figures = cells.CELLS[name](context)
        except OSError as error:  # of this script's own work: files, mounts, namespaces
            raise Failed(str(error)) from error
        if "warm_bytes_per_second" in figures:
            figures["warm_bits_per_second"] = figures["warm_bytes_per_second"] * 8
        said = report.cell_summary(name, figures)
    except (Skipped, Failed) as problem:
        kind = "skipped" if isinstance(problem, Skipped) else "FAILED"
        figures, said = problem, f"{name:16} {kind}: {problem}"
    say(f"  {said}  [{time.monotonic() - began:.1f} s]")
    return figures


def run_rounds(selected, context, count):
    wanted = set().union(*(row.cells() for row in selected))
    rounds = []
    for number in range(count):
        say(f"round {number + 1} of {count}")
        rounds.append({name: measure(name, context) for name in cells.order(wanted, number)})
    return rounds


def as_json(outcomes, rounds, machine, arguments):
    value = history.record(outcomes, machine, arguments.rounds, arguments.seconds)
    value["cells"] = [
        {name: figures if isinstance(figures, dict) else {"problem": str(figures)}
         for name, figures in measured.items()} for measured in rounds]
    return value


def benchmark(arguments):
    selected = select_rows(arguments.only)
    if not selected:
        raise Refused(f"no row matches '{arguments.only.pattern}': see --list")
    if not os.path.isdir(arguments.build):
        raise Refused(f"{arguments.build} is not there: ./dev build release")
    machine = history.describe(ROOT)
    machine["place"] = arguments.place
    context = Context(os.path.abspath(arguments.build), arguments.seconds, arguments.quick)
    context.network = isolation.Network(isolation.place(arguments.place, os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory(prefix="bench-", dir=os.path.join(ROOT, "build")) as directory:
        context.directory = directory
        try:
            rounds = run_rounds(selected, context, arguments.rounds)
        finally:
            isolation.unmount_below(directory)
    outcomes = [rows.evaluate(row, rounds) for row in selected]
    print(report.heading(machine, arguments.rounds, arguments.seconds, arguments.quick))
    print(report.table(outcomes))
    print(f"\n{report.summary(outcomes)}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(as_json(outcomes, rounds, machine, arguments), file, indent=2)
    if arguments.record or not (arguments.quick or arguments.only):
        history.append(HISTORY,
                       history.record(outcomes, machine, arguments.rounds, arguments.seconds))
        say(f"appended to {os.path.relpath(HISTORY)}")
    return 1 if any(outcome.verdict == rows.FAILED for outcome in outcomes) else 0


def interrupted(number, _):
    raise SystemExit(128 + number)


def main(words):
    arguments = parse_arguments(words)
    if arguments.list:
        print("\n".join(f"{row.key:12} {row.what}" for row in rows.ROWS))
        return 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
    try:
        isolation.become_able([os.path.realpath(sys.argv[0]), *words])
        return benchmark(arguments)
    except Refused as reason:
        say(f"bench/run: {reason}")
        return 2
