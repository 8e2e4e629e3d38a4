! SPDX-License-Identifier: Apache-2.0
!
! The module mpi_f08: handles and statuses are types, error codes may be left out. Made, checked,
! saved when the argument is "save", and checked again.

program fortran08
  use mpi_f08
  use, intrinsic :: iso_c_binding
  implicit none
  interface
    integer(c_int) function checkpoint(state) bind(C, name="MPIX_Checkpoint")
      import
      integer(c_int) :: state
    end function
  end interface
  integer :: me, n, left, right
  integer(c_int) :: state
  integer, asynchronous :: got(2), mine(2)
  character(len=16) :: argument
  type(MPI_Comm) :: dup, ring, lone
  type(MPI_Group) :: group, world
  type(MPI_Datatype) :: pair

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, me)
  call MPI_Comm_size(MPI_COMM_WORLD, n)
  right = mod(me + 1, n)
  left = mod(me + n - 1, n)
  call MPI_Comm_dup(MPI_COMM_WORLD, dup)
  call MPI_Comm_group(dup, world)
  call MPI_Group_incl(world, 1, [n - 1], group)
  call MPI_Type_contiguous(2, MPI_INTEGER, pair)
  call MPI_Type_commit(pair)
  call MPI_Dist_graph_create(MPI_COMM_WORLD, 1, [me], [1], [right], MPI_UNWEIGHTED, MPI_INFO_NULL, .false., ring)
  call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 0, [left], MPI_WEIGHTS_EMPTY, 0, [right], MPI_WEIGHTS_EMPTY, &
                                      MPI_INFO_NULL, .false., lone)

  call check()
  call get_command_argument(1, argument)
  state = -1
  if (argument == 'save') then
    if (checkpoint(state) /= 0) call fail('MPIX_Checkpoint')
    call check()
  end if
  call MPI_Comm_free(dup)
  if (dup /= MPI_COMM_NULL) call fail('MPI_Comm_free')
  call MPI_Comm_free(ring)
  call MPI_Comm_free(lone)
  call MPI_Finalize()
  if (me /= 0) stop
  if (state == 2) then
    print '(a)', 'fortran08: ok, restarted'
  else if (state == 1) then
    print '(a)', 'fortran08: ok, saved'
  else
    print '(a)', 'fortran08: ok'
  end if

contains

  subroutine fail(what)
    character(len=*), intent(in) :: what
    print '(a,i0,2a)', 'fortran08: rank ', me, ': ', what
    call MPI_Abort(MPI_COMM_WORLD, 1)
  end subroutine

  subroutine check()
    integer :: total, rank(1), count, degree(2), from(1), to(1)
    logical :: weighted
    type(MPI_Status) :: status
    type(MPI_Request) :: requests(2)
    total = me + 1
    call MPI_Allreduce(MPI_IN_PLACE, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
    if (total /= n * (n + 1) / 2) call fail('MPI_Allreduce in place')
    call MPI_Irecv(got, 1, pair, left, 3, dup, requests(1))
    mine = [me, me + 1]
    call MPI_Isend(mine, 2, MPI_INTEGER, right, 3, dup, requests(2))
    call MPI_Wait(requests(1), status)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    call MPI_Get_count(status, pair, count)
    if (requests(1) /= MPI_REQUEST_NULL .or. requests(2) /= MPI_REQUEST_NULL) call fail('requests')
    if (status%MPI_SOURCE /= left .or. status%MPI_TAG /= 3 .or. count /= 1) call fail('status')
    if (got(1) /= left .or. got(2) /= left + 1) call fail('message')
    call MPI_Group_translate_ranks(group, 1, [0], world, rank)
    if (rank(1) /= n - 1) call fail('group')
    call MPI_Dist_graph_neighbors_count(ring, degree(1), degree(2), weighted)
    if (degree(1) /= 1 .or. degree(2) /= 1 .or. weighted) call fail('graph without weights')
    call MPI_Dist_graph_neighbors(ring, 1, from, MPI_UNWEIGHTED, 1, to, MPI_UNWEIGHTED)
    if (from(1) /= left .or. to(1) /= right) call fail('neighbours')
  end subroutine
end program
