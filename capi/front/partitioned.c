// SPDX-License-Identifier: Apache-2.0
//
// partitioned.c: partitioned communication, except the calls on a partition, which are generated.
#include "front/front.h"

static int made(unsigned fn, const void *buf, int partitions, MPI_Count count, MPI_Datatype type, int peer,
                int tag, MPI_Comm comm, MPI_Request *request) {
    ckpt_vid v = VID_REQUEST_NULL;
    const struct Psend_init_words a = {.buf = in_buf(buf),
                                       .partitions = partitions,
                                       .count = count,
                                       .datatype = in_type(type),
                                       .dest = in_rank(peer),
                                       .tag = in_tag(tag),
                                       .comm = in_comm(comm),
                                       .request = &v};
    long rc = front_call(fn, &a);
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
