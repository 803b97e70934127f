"""The CPU that is built for, and the toolchain that a Compilation's id depends on."""

from __future__ import annotations

import pytest

from service.compiler import target as target_module
from service.compiler.target import features, host_cpu, toolchain, tvm_target
from service.errors import BuildFailed
from service.host_cpu import host_flags
from service.nouns import Target, canonical_json


def test_native_is_the_host_and_claims_no_feature_that_linux_does_not_list() -> None:
    target = tvm_target(Target())
    assert target.attrs["mcpu"] == host_cpu()
    flags = host_flags()
    if flags:
        linux = {target_module._LINUX_FLAGS[name] or name for name in features(target)}
        assert linux <= flags


def test_a_feature_that_the_machine_hides_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    present = host_flags()
    if "avx2" not in present:
        pytest.skip("this host has no AVX2 that could be hidden")
    monkeypatch.setattr(target_module, "host_flags", lambda: present - {"avx2"})
    monkeypatch.setattr(target_module, "_hidden_features", target_module._hidden_features.__wrapped__)
    target = tvm_target(Target())
    assert "-avx2" in list(target.attrs["mattr"])
    assert "avx2" not in features(target)


def test_a_named_cpu_is_taken_as_it_is() -> None:
    target = tvm_target(Target(cpu="haswell"))
    assert "avx2" in features(target)
    assert "avx512f" not in features(target)


def test_a_cpu_that_llvm_does_not_know_is_named() -> None:
    with pytest.raises(BuildFailed) as caught:
        tvm_target(Target(cpu="haswel"))
    assert caught.value.extensions == {"field": "target.cpu", "nearest": caught.value.extensions["nearest"]}
    assert "haswell" in caught.value.extensions["nearest"]


def test_the_toolchain_is_canonical_json() -> None:
    assert canonical_json(toolchain())
    assert set(toolchain()) == {"compiler", "tvm", "tvm_ffi", "torch", "python", "cpu", "cpu_features"}
