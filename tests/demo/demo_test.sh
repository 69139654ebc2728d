#!/usr/bin/env bash
# demo_test.sh FARVERBS: a small run of the main job, read as a program would. 77: nothing to run on.
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
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$farverbs" demo --size 4MB --rate 100mbit --rtt 20ms --directory "$work" --json >"$work/result"
python3 - "$work/result" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    transfers = {entry["name"]: entry for entry in json.load(file)["transfers"]}
farverbs = transfers["Farverbs"]
assert farverbs["outcome"] == "done" and farverbs["identical"], farverbs
assert farverbs["sent_bytes"] > 4_000_000, farverbs
# A tenth of the line is the least that a working transport shows on the busiest machine.
assert farverbs["bits_per_second"] > 10e6, farverbs
assert transfers["TCP CUBIC"]["identical"], transfers["TCP CUBIC"]
PYTHON
# Nothing is left behind.
[[ $(ls "$work") == result ]]
echo "copied and compared"
