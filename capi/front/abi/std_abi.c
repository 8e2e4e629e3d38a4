// SPDX-License-Identifier: Apache-2.0
//
// std_abi.c: the tables of the standard ABI, and functions that only this ABI has.  It has no data symbols.
#include "front/front.h"

const unsigned char std_type_index[1024] = {
#define X(name, number, standard) [standard] = number,
    STD_DATATYPE_LIST(X)
#undef X
};
const unsigned short std_types[CKPT_VID_PREDEFINED] = {[0] = 512,
#define X(name, number, standard) [number] = standard,
                                                       STD_DATATYPE_LIST(X)
#undef X
};
const unsigned char std_op_index[64] = {
#define X(name, number, standard) [standard] = number,
    STD_OP_LIST(X)
#undef X
};
const unsigned short std_ops[16] = {[0] = 32,
#define X(name, number, standard) [number] = standard,
                                    STD_OP_LIST(X)
#undef X
};
