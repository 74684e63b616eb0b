"""The distribution of tests over processes: a group or a file is assigned to a process as a whole, in order.

The scheduler of `--dist loadgroup` assigns every test without a group on its own. For each result, it then looks at all
tests that were assigned so far, which is slow in a run of 18,000 tests. It also begins with the groups that have the
most tests. Here the order of the folders decides: browsers and killed processes come first, and
files that take less than a second come last, so that all processes end at about the same time.
"""

from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]

ASSIGNED_BY_TEST = "tests/simulation/"  # few tests, of seconds each, that share nothing


class FileScheduling(LoadGroupScheduling):  # type: ignore[misc]
    """Assigns groups and files."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return scope if scope.startswith(ASSIGNED_BY_TEST) else scope.partition("::")[0]
