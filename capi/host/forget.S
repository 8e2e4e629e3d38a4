// SPDX-License-Identifier: Apache-2.0
//
// forget.S: a program that was started on a processor with fewer registers (xstate.h) does not see that the lower half
// has used the others.
//
// A call of a function may change them, so no compiled code minds.  But the dynamic linker keeps all registers that are
// in use while it looks for a function that is called for the first time, in room that it has measured when the program
// began: on a processor with AVX-512 XSAVEC would write behind it, onto the frames of its callers.  So after each
// crossing these registers are set to their initial state, in which XSAVEC writes nothing of them.
//
// The gate's code and layout are as ever: it finds other functions in its table, which come here.
    .intel_syntax noprefix

    .set FORGET_LIMIT, 1024 // as the two in xstate.h
    .set FORGET_BYTES, 16

    .bss
    .globl forget_components, forget_functions
    .balign 8
forget_components: .skip 8
forget_functions: .skip 8

    .text
    .globl forget_calls
    .balign 16
forget_calls:
    .set n, 0
    .rept FORGET_LIMIT
    .balign FORGET_BYTES
    push n
    jmp forget_call
    .set n, n + 1
    .endr

forget_call:                            // RDI is the function's argument
    pop rax
    mov r11, [rip + forget_functions]
    sub rsp, 8
    call [r11 + rax*8]
    add rsp, 8
    // goes on into it

// void forget(void): changes RCX, RDX and R11 besides.
    .globl forget
forget:
    push rbp
    mov rbp, rsp
    mov r11, rax
    sub rsp, 640
    and rsp, -64                        // XRSTOR faults elsewhere
    xor ecx, ecx
    .set at, 512                        // the header: no component is in use
    .rept 8
    mov [rsp + at], rcx
    .set at, at + 8
    .endr
    stmxcsr [rsp + 24]                  // XRSTOR of AVX loads it in any case
    mov eax, [rip + forget_components]
    mov edx, [rip + forget_components + 4]
    xrstor [rsp]
    mov rax, r11
    mov rsp, rbp
    pop rbp
    ret

    .section .note.GNU-stack, "", @progbits
