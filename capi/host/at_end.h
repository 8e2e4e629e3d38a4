// SPDX-License-Identifier: Apache-2.0
//
// at_end.h: what the libraries of the lower half want called when the process ends.
#ifndef CKPT_HOST_AT_END_H
#define CKPT_HOST_AT_END_H

// Calls what the shared object that code is part of has registered with atexit or the like, and was not called
// yet, last first.  ckptrun exports it to backs.
void lower_at_end(const void *code);

#endif
