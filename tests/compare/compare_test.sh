#!/usr/bin/env bash
# compare_test.sh FARVERBS: one short row of the comparison with kernel TCP, and its reports read as a
# program would. 77: nothing to run on.
set -euo pipefail

farverbs=$1
if ! unshare --user --map-root-user --net true 2>/dev/null; then
  echo "this machine lets nobody make network namespaces"
  exit 77
fi
if [[ ! -c /dev/net/tun ]]; then
  echo "this machine has no /dev/net/tun"
  exit 77
fi
if ! command -v iperf3 >/dev/null; then
  echo "iperf3 is missing: apt install iperf3"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$farverbs" compare wan --rate 100mbit --rtt 20ms --loss 0 --seconds 3 --only '^bulk 100 ' \
  --directory "$work" --json "$work/report.json" --html "$work/report.html"
python3 - "$work" <<'PYTHON'
import json
import sys
from html.parser import HTMLParser

with open(sys.argv[1] + "/report.json", encoding="utf-8") as file:
    report = json.load(file)
(row,) = report["rows"]
assert row["name"] == "bulk 100 Mb/s 20 ms", row["name"]
runs = {run["program"]: run for run in row["runs"]}
for program in "Farverbs", "TCP CUBIC":
    run = runs[program]
    assert "failed" not in run and "skipped" not in run, run
    figures = run["figures"]
    # Half of the line is the least that a working program shows on the busiest machine.
    assert 0.5 < figures["goodput_of_limit"] < 1.02, (program, figures)
    assert 15 < figures["rtt_base_ms"] < 40, (program, figures)
    assert figures["cpu_s_per_gb"] > 0, (program, figures)
    assert sum(run["rate"]["bytes"]) > 10e6, (program, figures)
    assert len(run["rtt_seconds_ms"]) > 50, program


class Page(HTMLParser):
    void = {"meta", "line", "rect", "br"}

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], set()

    def handle_starttag(self, tag, attributes):
        self.seen.add(tag)
        assert not any(name in ("src", "href") for name, _ in attributes), "needs a network"
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.add(tag)

    def handle_endtag(self, tag):
        if tag not in self.void:
            assert self.open.pop() == tag, tag


page = Page()
with open(sys.argv[1] + "/report.html", encoding="utf-8") as file:
    page.feed(file.read())
assert not page.open, page.open
assert {"svg", "polyline", "rect", "table"} <= page.seen, page.seen
PYTHON
# Nothing is left behind but the reports.
[[ $(ls "$work" | sort | tr '\n' ' ') == "report.html report.json " ]]
echo "compared"
