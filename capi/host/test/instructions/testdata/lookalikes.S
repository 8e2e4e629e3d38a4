// SPDX-License-Identifier: Apache-2.0
//
// lookalikes.S: prefixes of FS in all positions that assemblers make, and bytes 0x64 that are none: parts of
// addresses and numbers with what could be the rest of such an instruction behind them.
    .text

    .macro forms
    mov %fs:0, %rax
    mov %fs:(%rax), %ecx
    mov %fs:8(%rax,%rdx,8), %r9
    movl $0x64646464, %fs:0x64(%r10)
    lock addq $1, %fs:(%rcx)
    data16
    mov %fs:0x10, %ax
    vmovdqu %fs:64(%rax), %ymm1
    movaps %xmm8, %fs:(%r11,%r12,2)
    cmpb $0x64, %fs:0x64
    call *%fs:0x64(%rax)
    .byte 0x66, 0x66, 0x64                  // as linkers relax accesses of shared libraries
    mov 0, %rax
    movabs $0x0000000025048b4864, %rax      // mov %fs:0, %rax as a number
    movabs $0x64008b4864008b48, %rcx
    mov 0x64(%rax), %ecx
    mov %rax, (%rcx)
    mov 0x64(%rdi), %rsi
    lock incl (%rsi)
    movl $0x008b4864, (%rdx)
    cmp $0x64, %eax
    movzbl (%rcx), %edx
    addq $0x64, 0x64(%rsp)
    cmpxchg %rcx, (%rax)
    lea 0x64(%rax,%rax,2), %rdx
    vmovdqa 0x64(%rax), %xmm0
    mov 0x64646464(%rbx), %rax
    movl $0x64, %ecx
    rep movsb
    .endm

    .globl known
    .type known, @function
known:
    .cfi_startproc
    .rept 20
    forms
    .endr
    ret
    .cfi_endproc

    .balign 64
    .globl unknown
    .type unknown, @function
unknown:                                    // no unwind information, but where instructions fall into step
    .rept 20
    forms
    .endr
    ret
    .section .note.GNU-stack, "", @progbits
