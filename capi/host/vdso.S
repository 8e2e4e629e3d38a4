// SPDX-License-Identifier: Apache-2.0
//
// vdso.S: the vDSO that the upper half sees.  It lies in the arena and calls the kernel's through
// the gate page, so it stays valid after a restart under another kernel, and time costs what it
// costs natively.
//
// A thread that is inside the kernel's vDSO cannot be saved there.  Each function leaves at
// gs:[48] the stack pointer of a frame whose first word is where to start over; a handler that
// interrupts the kernel's code rewinds to it.
    .intel_syntax noprefix
    .text
    .set GATE_VDSO, 0x100000000000 + 32   // ckpt_gate_page.vdso

    .macro forward name, index
    .globl __vdso_\name
    .type __vdso_\name, @function
    .balign 16
__vdso_\name:
    endbr64
9:  push rdi
    push rsi
    push rdx
    push rbx                              // the kernel's code may have changed these when it is
    push rbp                              // interrupted, and only its own end puts them back
    push r12
    push r13
    push r14
    push r15
    lea rax, [rip + 8f]
    push rax                              // aligned: return address and ten words
    sub rsp, 8
    lea rax, [rsp + 8]
    mov gs:[48], rax
    movabs rax, GATE_VDSO                 // load and call in one step: a thread that is saved before it
    call qword ptr [rax + 8 * \index]     // must not carry this process's address to the next
    mov qword ptr gs:[48], 0
    add rsp, 88
    ret
8:  mov qword ptr gs:[48], 0              // rewound: rsp is at the word that named us
    add rsp, 8
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    pop rdx
    pop rsi
    pop rdi
    jmp 9b
    .size __vdso_\name, . - __vdso_\name
    .endm

    forward clock_gettime, 0
    forward gettimeofday, 1
    forward time, 2
    forward clock_getres, 3
    forward getcpu, 4

    .section .note.GNU-stack, "", @progbits
