"""One line of JSON a run, appended to bench/history.jsonl: how the ratios went over time, on which
commit and machine."""

import datetime
import json
import os
import statistics
import subprocess


def _git(root, *words):
    try:
        done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True,
                              check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def commit(root):
    """The short name of what is checked out, with -dirty if files differ from it."""
    name = _git(root, "rev-parse", "--short=12", "HEAD")
    if name and _git(root, "status", "--porcelain", "--untracked-files=no"):
        name += "-dirty"
    return name or "unknown"


def cpu_model(cpuinfo=None):
    if cpuinfo is None:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            cpuinfo = file.read()
    for line in cpuinfo.splitlines():
        if line.startswith(("model name", "Model name")):
            return line.split(":", 1)[1].strip()
    return os.uname().machine


def _row(outcome):
    value = {"verdict": outcome.verdict}
    if outcome.reason:
        value["reason"] = outcome.reason
    if outcome.values:
        value.update(median=round(outcome.median, 4), min=round(min(outcome.values), 4),
                     max=round(max(outcome.values), 4), ours=statistics.median(outcome.ours))
        if outcome.row.theirs:
            value.update(theirs=statistics.median(outcome.theirs), yardsticks=list(outcome.chosen))
    return value


def record(outcomes, machine, rounds, seconds):
    """A run as JSON. machine: what describe() gives."""
    return {**machine, "rounds": rounds, "seconds": seconds,
            "rows": {outcome.row.key: _row(outcome) for outcome in outcomes}}


def describe(root):
    """When, what and where."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return {"date": now.strftime("%Y-%m-%dT%H:%M:%SZ"), "commit": commit(root),
            "kernel": os.uname().release, "cpu": cpu_model(), "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 2)}


def append(path, value):
    """In one write, so that two runs at a time do not mix."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(value, ensure_ascii=False) + "\n")
