# SPDX-License-Identifier: Apache-2.0
"""The log configuration for the bare command: FLARE's own, less one line for every site and task."""

import copy
import json
import logging
from pathlib import Path

from nvflare.fuel.utils.log_utils import ConciseLogFilter, concise_log_dict

FILE = Path(__file__).parents[2] / "examples" / "log_config.json"
QUIET = json.loads(FILE.read_text(encoding="utf-8"))
RULE = QUIET["filters"]["ConciseFilter"]


def record(name: str, level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord(name, level, __file__, 1, "started to run", (), None)


def test_it_is_the_simulators_own_configuration_but_for_the_worker_that_it_leaves_out() -> None:
    quiet = copy.deepcopy(QUIET)
    assert quiet["filters"]["ConciseFilter"].pop("exclude_logger_names") == ["ClientTaskWorker"]
    assert quiet == concise_log_dict


def test_the_workers_line_is_dropped_and_its_warnings_and_all_other_lines_are_shown() -> None:
    rule = ConciseLogFilter(**{key: value for key, value in RULE.items() if key != "()"})
    assert not rule.filter(record("__main__.ClientTaskWorker"))
    assert rule.filter(record("__main__.ClientTaskWorker", level=logging.WARNING))
    assert rule.filter(record("fdg_plugins.site"))
