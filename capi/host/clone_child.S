// SPDX-License-Identifier: Apache-2.0
//
// clone_child.S: what the child of the lower half's clone and clone3 begins with: GS becomes the thread pointer that
// the kernel put into FS.  lower_tls.c copies one of both forms in front of the C library's own code, so they are
// position independent.  The child has its function and its argument in registers or on its stack: RAX, RCX and R11
// alone are free.
//
// A child without thread-local storage of its own, as that of posix_spawn, has its maker's FS, which is the upper
// half's (struct thread: 16 upper_fs), and keeps its maker's GS.
    .intel_syntax noprefix
    .text
    .globl child_sets_gs, child_sets_gs_end, child_asks_for_gs, child_asks_for_gs_end

child_sets_gs:
    rdfsbase rcx
    mov rax, gs:[-8]                    // the maker's record
    test rax, rax
    jz 1f
    cmp rcx, [rax + 16]
    je 2f
1:  wrgsbase rcx
2:
child_sets_gs_end:

// Without FSGSBASE: the C library keeps the thread pointer in the first word there, and the kernel sets the base.
child_asks_for_gs:
    mov rcx, fs:[0]
    mov rax, gs:[-8]
    test rax, rax
    jz 1f
    cmp rcx, [rax + 16]
    je 2f
1:  push rdi
    push rsi
    mov rsi, rcx
    mov edi, 0x1001                     // ARCH_SET_GS
    mov eax, 158                        // arch_prctl
    syscall
    pop rsi
    pop rdi
2:
child_asks_for_gs_end:

    .section .note.GNU-stack, "", @progbits
