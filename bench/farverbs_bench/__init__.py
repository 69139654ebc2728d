"""Measures Farverbs against the yardsticks of this machine, in the same run, round by round.

main        options, the rounds, what is printed and kept
isolation   two network namespaces, a veth between them, memory for files; gone with this process
process     programs in those namespaces, with what they cost
ours        what is measured of Farverbs
yardsticks  what it is divided by
cells       the list of all measurements
rows        the table: which measurement over which, and what it has to reach
report      figures and verdicts as Markdown
history     one line of JSON a run
"""
