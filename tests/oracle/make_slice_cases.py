#!/usr/bin/env python3
"""Writes tests/unit/data/slice_cases.txt: what Python selects by begin:end:step on an axis of size n.

    python3 tests/oracle/make_slice_cases.py > tests/unit/data/slice_cases.txt

A line is n, begin, end (x: not given), step, then how many elements, the first and the last of them (0 0 for none).
"""
import itertools

places = (None, -6, -4, -3, -1, 0, 1, 3, 4, 9)
for n, begin, end, step in itertools.product((0, 1, 4), places, places, (1, 2, -1, -3)):
    chosen = list(range(n))[begin:end:step]
    ends = (chosen[0], chosen[-1]) if chosen else (0, 0)
    print(n, *("x" if p is None else p for p in (begin, end)), step, len(chosen), *ends)
