"""Functions found in the text of bytecode, LLVM IR and assembly."""

from __future__ import annotations

import pytest

from service.listings import assembly_functions, bytecode_functions, kernel_of, llvm_functions

LLVM = """\
@.str = private constant [10 x i8] c"TypeError\\00", align 1
define dllexport i32 @__tvm_ffi_relu(ptr %args) local_unnamed_addr #0 {
entry:
  ret i32 0
}
define internal fastcc void @__tvm_set_raised_6(ptr %0) #1 {
  ret void
}
define internal fastcc i32 @relu_compute_(ptr %0) #1 {
  ret i32 1
}
declare i32 @TVMFFIErrorSetRaisedFromCStrParts(ptr)
"""
ASSEMBLY = """\

libx.so:     file format elf64-x86-64


Disassembly of section .text:

0000000000001000 <__tvm_ffi_add>:
    1000:\tpush   r15
    1002:\tret
    1003:\tdata16 cs nop WORD PTR [rax+rax*1+0x0]
    100e:\txchg   ax,ax

0000000000001010 <__tvm_set_raised_6>:
    1010:\tret

0000000000001020 <__tvm_parallel_lambda.3>:
    1020:\tret
"""
BYTECODE = """\
@main:
  call  relu             in: %0, %1       dst: %void
  ret   %1

@relu packed_func;

"""


@pytest.mark.parametrize(
    ("symbol", "kernel"),
    [
        ("__tvm_ffi_fused_add", "fused_add"),
        ("fused_add_compute_", "fused_add"),
        ("__tvm_parallel_lambda.3", "__tvm_parallel_lambda.3"),
        ("__tvm_set_raised_6", None),
        ("memset", None),
    ],
)
def test_symbols_lead_to_their_kernel(symbol, kernel):
    assert kernel_of(symbol) == kernel


def test_wrapper_and_kernel_are_one_function_of_llvm():
    (relu,) = llvm_functions(LLVM)
    assert (relu["name"], relu["kind"]) == ("relu", "llvm")
    assert "ret i32 0" in relu["text"]
    assert "ret i32 1" in relu["text"]
    assert "raised" not in relu["text"]


def test_llvm_says_of_which_line_it_is_made():
    text = """\
define internal fastcc i32 @relu_compute_(ptr %0) #1 !dbg !5 {
    #dbg_value(ptr %0, !11, !DIExpression(), !15)
  %1 = load float, ptr %0, !dbg !15
  %2 = fadd float %1, %1, !dbg !16
  ret i32 1
}
!15 = !DILocation(line: 0, scope: !5)
!16 = !DILocation(line: 12, column: 3, scope: !5, inlinedAt: !17)
"""
    (relu,) = llvm_functions(text)
    assert relu["made_of"] == [0, 0, 0, 12, 0, 0]


def test_assembly_says_of_which_line_it_is_made():
    table = """\
Contents of the .debug_line section:

CU: IRModule.CodeGenLLVM:
File name                            Line number    Starting address    View    Stmt
IRModule.CodeGenLLVM                           0              0x1000               x
IRModule.CodeGenLLVM                           7              0x1000       1       x
IRModule.CodeGenLLVM                           0              0x1020               x
IRModule.CodeGenLLVM                           -              0x1021
"""
    loop, add = assembly_functions(table + ASSEMBLY)
    assert add["made_of"] == [0, 7, 7]
    assert loop["made_of"] == [0, 0]


def test_assembly_is_cut_at_its_labels_and_loses_its_fillers():
    loop, add = assembly_functions(ASSEMBLY)
    assert add["name"] == "add"
    assert add["text"] == "__tvm_ffi_add:\n    1000:  push   r15\n    1002:  ret\n"
    assert loop["name"] == "__tvm_parallel_lambda.3"


def test_bytecode_is_shown_without_its_imports():
    (main,) = bytecode_functions(BYTECODE)
    assert main["text"].splitlines() == BYTECODE.splitlines()[:3]
