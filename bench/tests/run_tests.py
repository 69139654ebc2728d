#!/usr/bin/env python3
"""Runs every *_test.py of this folder."""

import os
import sys
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

if __name__ == "__main__":
    suite = unittest.defaultTestLoader.discover(HERE, pattern="*_test.py")
    if suite.countTestCases() == 0:
        sys.exit("no tests found")
    sys.exit(not unittest.TextTestRunner(verbosity=1).run(suite).wasSuccessful())
