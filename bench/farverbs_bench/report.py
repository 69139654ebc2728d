"""Figures as people read them, the table as Markdown, and the line that sums it up."""

import statistics

from .rows import BELOW_AIM, BITS, CONNECTIONS, CPU, FAILED, MISSED, OK, P50, RATE, SKIPPED


def number(value):
    """Three digits, and no more than a figure is worth."""
    if value == 0:
        return "0"
    for limit, digits in ((100, 0), (10, 1), (1, 2)):
        if abs(value) >= limit:
            return f"{value:,.{digits}f}"
    return f"{value:.3f}"


def quantity(value, metric):
    """A figure with its unit."""
    if metric == BITS:
        return f"{number(value / 1e9)} Gb/s" if value >= 1e9 else f"{number(value / 1e6)} Mb/s"
    if metric == CPU:
        return f"{number(value)} s/GB"
    if metric == P50:
        return f"{number(value)} us"
    if metric == RATE:
        return f"{number(value / 1e6)} M/s"
    if metric == CONNECTIONS:
        return f"{number(value)} /s"
    return f"{number(value)} B"


def cell_summary(name, figures):
    """One line for the eyes of who waits."""
    shown = [quantity(figures[metric], metric) for metric in (BITS, CPU, P50) if metric in figures]
    if figures.get(RATE, 0) > 1e5:
        shown.append(quantity(figures[RATE], RATE))
    if "bytes_per_qp" in figures:
        shown.append(f"{figures['bytes_per_qp']:.0f} B per QP")
    if "warm_bytes_per_second" in figures:
        shown.append(f"{figures['warm_bytes_per_second'] / 1e9:.1f} GB/s in cache, "
                     f"{figures['cold_bytes_per_second'] / 1e9:.1f} GB/s out of it")
    return f"{name:16} {', '.join(shown)}"


def _spread(values):
    if len(values) == 1:
        return number(values[0])
    return f"{number(statistics.median(values))} ({number(min(values))}..{number(max(values))})"


def _limit(row, value):
    if value is None:
        return ""
    sign = "≥" if row.better == "more" else "≤"
    return f"{sign} {value:,g}"


def _cells(outcome):
    row = outcome.row
    note = outcome.verdict
    if outcome.verdict in (SKIPPED, FAILED):
        note = f"**{outcome.verdict}: {outcome.reason}**".replace("|", "/").replace("\n", " ")
    if not outcome.values:
        return [row.what, "-", _limit(row, row.must), _limit(row, row.aim), note, "-", "-"]
    mine = quantity(statistics.median(outcome.ours), row.metric)
    theirs = "-"
    if row.theirs:
        theirs = (f"{quantity(statistics.median(outcome.theirs), row.metric)} "
                  f"({', '.join(outcome.chosen)})")
    return [row.what, _spread(outcome.values), _limit(row, row.must), _limit(row, row.aim), note,
            mine, theirs]


def table(outcomes):
    """Markdown, its columns lined up."""
    lines = [["what", "median (min..max)", "must", "aim", "verdict", "Farverbs", "yardstick"]]
    lines += [_cells(outcome) for outcome in outcomes]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| " + " | ".join(text.ljust(width) for text, width in zip(line, widths)) + " |"
        for line in lines)


def heading(machine, rounds, seconds, quick):
    """Where and how long."""
    text = (f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, commit "
            f"{machine['commit']}, {rounds} round{'' if rounds == 1 else 's'} of {seconds:g} s "
            "a measurement")
    text += {"two": ", the ends of a pair on two processors", "one": ", both on one processor"}.get(
        machine.get("place"), "")
    if quick:
        text += ". Quick: it shows that everything runs, not how fast"
    if machine["load"] > machine["cores"] / 2:
        text += (f". **The load was {machine['load']} when it began: other programs took part, "
                 "and the figures mean little**")
    return text + "\n"


def summary(outcomes):
    """Context rows count for nothing."""
    verdicts = [outcome.verdict for outcome in outcomes if outcome.row.must is not None]
    text = (f"{verdicts.count(OK)} reached, {verdicts.count(BELOW_AIM)} below aim, "
            f"{verdicts.count(MISSED)} missed, {verdicts.count(SKIPPED)} skipped")
    failed = sum(outcome.verdict == FAILED for outcome in outcomes)
    return text + (f", {failed} FAILED to run" if failed else "")
