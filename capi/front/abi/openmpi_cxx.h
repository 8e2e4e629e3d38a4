// SPDX-License-Identifier: Apache-2.0
//
// openmpi_cxx.h: what our libmpi and our part of libmpi_cxx share.
#ifndef CKPT_OPENMPI_CXX_H
#define CKPT_OPENMPI_CXX_H

#include "front/front.h"

// Functions of the binding, which make a C++ object from the handle and call the user's function.
typedef void openmpi_cxx_invoke(void *handle, int *code, const char *text, void *function);
typedef void openmpi_cxx_throw(void *handle, int *code, ...);

MPI_Errhandler ckpt_front_cxx_errhandler(int sort, void *function, openmpi_cxx_invoke *invoke);
// Sets what MPI::ERRORS_THROW_EXCEPTIONS does for objects of that sort.
void ckpt_front_cxx_throws(int sort, openmpi_cxx_throw *function);

#endif
