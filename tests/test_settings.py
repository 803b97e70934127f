"""Settings from the environment."""

from __future__ import annotations

import dataclasses
import os
import re

import pytest

from service.nouns import Limits
from service.settings import SettingsError, default_limits, limits_from_environment, request_log_from_environment
from tests.conftest import ROOT


def test_there_is_one_compilation_for_each_core_that_may_be_used():
    assert default_limits().concurrent_compilations == len(os.sched_getaffinity(0))


def test_a_variable_replaces_one_limit_in_its_own_type():
    limits = limits_from_environment({"RELAXD_COMPILE_S": "2.5", "RELAXD_PASSES": "7", "OTHER": "x"})
    assert (limits.compile_s, limits.passes) == (2.5, 7)
    assert limits.infer_s == default_limits().infer_s


def test_every_limit_is_a_setting_that_is_documented():
    rows = re.findall(r"^\| `RELAXD_(\w+)` \|", (ROOT / "docs" / "deploy.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(entry.name.upper() for entry in dataclasses.fields(Limits))
    for entry in dataclasses.fields(Limits):
        changed = limits_from_environment({f"RELAXD_{entry.name.upper()}": "3"})
        assert getattr(changed, entry.name) == 3


def test_which_requests_are_noted_is_a_setting():
    assert request_log_from_environment({}) == "failed"
    assert request_log_from_environment({"RELAXD_REQUEST_LOG": "all"}) == "all"
    with pytest.raises(SettingsError, match="RELAXD_REQUEST_LOG must be all, failed, off, not 'some'"):
        request_log_from_environment({"RELAXD_REQUEST_LOG": "some"})


@pytest.mark.parametrize("value", ["soon", "", "0", "-3", "nan", "2.5"])
def test_what_is_no_positive_number_is_refused_by_name(value):
    with pytest.raises(SettingsError, match="RELAXD_PASSES must be"):
        limits_from_environment({"RELAXD_PASSES": value})
