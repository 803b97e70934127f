"""Sizes for symbols, and a profile from what a worker measured."""

from __future__ import annotations

import pytest

from service.errors import InvalidField
from service.listings import text_function
from service.nouns import Signature, TensorSpec
from service.profiles import input_specs, parse_sizes, report

SIGNATURE = Signature(
    (TensorSpec("x", ("batch", 784), "float32"), TensorSpec("y", ("2*batch + 1", "length // 2"), "int64")),
    (),
    {"batch": (2, 64), "length": (4, None)},
)


def test_symbols_take_the_sizes_given_or_their_smallest():
    assert parse_sizes("batch:8", SIGNATURE) == {"batch": 8, "length": 4}
    assert parse_sizes(None, SIGNATURE) == {"batch": 2, "length": 4}


@pytest.mark.parametrize("text", ["batch", "batch:x", "batch:1", "batch:65", "other:3", "batch:8;length:3", "batch:-2"])
def test_sizes_that_cannot_be_are_refused(text):
    with pytest.raises(InvalidField) as caught:
        parse_sizes(text, SIGNATURE)
    assert caught.value.extensions["field"] == "sizes"


def test_dimensions_that_are_sums_of_symbols_are_computed():
    assert [spec.shape for spec in input_specs(SIGNATURE, {"batch": 8, "length": 10})] == [(8, 784), (17, 5)]


@pytest.mark.parametrize("dim", ["__import__('os')", "batch ** 9", "batch / 2", "1 // 0", "("])
def test_nothing_else_is_computed(dim):
    signature = Signature((TensorSpec("x", (dim,), "float32"),), (), {})
    with pytest.raises(InvalidField):
        input_specs(signature, {"batch": 2})


MEASURED = {
    "runs": 3,
    "total": {"min_us": 99.0, "median_us": 100.0, "spread_us": 2.0},
    "functions": [
        {"function": "relu", "calls": 2, "min_us": 9.0, "median_us": 20.0, "spread_us": 1.0},
        {"function": "dense", "calls": 1, "min_us": 70.0, "median_us": 70.0, "spread_us": 1.0},
        {"function": "vm.builtin.alloc_storage", "calls": 4, "min_us": 10.0, "median_us": 10.0, "spread_us": 1.0},
    ],
}
TIR = {
    "functions": [
        text_function("relu", "tensorir", "") | {"flops": 100, "bytes_moved": 800},
        text_function("dense", "tensorir", "") | {"flops": 7000, "bytes_moved": None},
    ]
}
LAST = {
    "functions": [
        text_function("relu", "tensorir", "") | {"origins": [1]},
        text_function("dense", "tensorir", "") | {"origins": [0, 1]},
    ]
}
ORIGINS = [{"module": "a", "source": "net.py:1: a"}, {"module": "b", "source": "net.py:2: b"}]


def test_kernels_come_by_time_with_their_rates_and_lines():
    told = report(MEASURED, {"flops_per_s": 1e9, "bytes_per_s": 1e8}, TIR, LAST, ORIGINS)
    dense, relu = told["kernels"]
    assert (dense["function"], dense["share"]) == ("dense", 0.7)
    assert dense["flops_per_s"] == 100_000_000
    assert dense["of_peak"] == 0.1
    assert dense["bytes_per_s"] is None
    assert relu["flops_per_s"] == 10_000_000
    assert relu["of_bandwidth"] == 0.8
    assert told["virtual_machine_us"] == 10.0
    assert [(each["source"], each["share"]) for each in told["sources"]] == [
        ("net.py:2: b", 0.55),
        ("net.py:1: a", 0.35),
    ]


def test_a_kernel_without_origins_keeps_its_time():
    told = report(MEASURED, {"flops_per_s": 1e9, "bytes_per_s": 1e8}, TIR, {"functions": []}, [])
    assert told["sources"] == [{"module": None, "source": None, "share": 0.9}]
