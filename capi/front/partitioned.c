// SPDX-License-Identifier: Apache-2.0
//
// partitioned.c: partitioned communication; the calls on a partition are generated.
#include "front/front.h"

static int made(unsigned fn, const void *buf, int partitions, MPI_Count count, MPI_Datatype type, int peer,
                int tag, MPI_Comm comm, MPI_Request *request) {
    ckpt_vid v = VID_REQUEST_NULL;
    long a[] = {in_buf(buf),   partitions,  count,         in_type(type),
                in_rank(peer), in_tag(tag), in_comm(comm), (long)&v};
    long rc = front_call(fn, a);
    if (rc != 0) return front_error(FRONT_COMM, in_comm(comm), fn, rc);
    *request = out_request(v);
    return MPI_SUCCESS;
}

FRONT(int, Psend_init,
      (const void *buf, int partitions, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
       MPI_Comm comm, MPI_Info info, MPI_Request *request)) {
    (void)info;
    return made(CKPT_FN_MPI_PSEND_INIT, buf, partitions, count, datatype, dest, tag, comm, request);
}

FRONT(int, Precv_init,
      (void *buf, int partitions, MPI_Count count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
       MPI_Info info, MPI_Request *request)) {
    (void)info;
    return made(CKPT_FN_MPI_PRECV_INIT, buf, partitions, count, datatype, source, tag, comm, request);
}
