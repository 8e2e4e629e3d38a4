# SPDX-License-Identifier: Apache-2.0
#
# rounds.py TESTS DIR OPTION...: rdma-core's own tests, which lie in TESTS, with their options, again and again until DIR/stop
# is there. Each round prints what became of each test, as a line of JSON.
import contextlib
import io
import json
import os
import random
import sys
import unittest

where, meet = sys.argv[1:3]
sys.path.insert(0, where)  # args_parser
sys.path.insert(0, os.path.dirname(where))  # tests
sys.argv = ["rounds", *sys.argv[3:]]

from args_parser import parser  # noqa: E402

parser.parse_args()
import tests  # noqa: E402


class Outcomes(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.of = {}

    def addSuccess(self, test):
        self.of[test.id()] = "passed"

    def addSkip(self, test, reason):
        self.of[test.id()] = "skipped: " + reason

    def addError(self, test, err):
        self.of[test.id()] = "failed: " + self._exc_info_to_string(err, test)

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        if err:
            self.addError(test, err)


number = 0
while True:
    number += 1
    random.seed(1)  # tests draw sizes
    outcomes = Outcomes()
    with contextlib.redirect_stdout(io.StringIO()):
        unittest.TestLoader().loadTestsFromModule(tests).run(outcomes)
    print(json.dumps(outcomes.of, sort_keys=True), flush=True)
    if os.path.exists(os.path.join(meet, "stop")):
        break
