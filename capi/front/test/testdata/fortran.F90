! SPDX-License-Identifier: Apache-2.0
!
! One of each object and special value that Fortran treats in its own way: made, checked, saved
! when the argument is "save", and checked again. BINDING_MODULE: "use mpi", else mpif.h.

module callbacks
  implicit none
  integer :: copies = 0, deletions = 0, errors = 0
contains
  subroutine add_twice(a, b, n, datatype)
    integer :: n, datatype
    integer :: a(n), b(n)
    b = b + 2 * a
    if (datatype == 0) stop 3
  end subroutine

  subroutine copy_attr(comm, keyval, extra, in, out, flag, ierr)
    integer :: comm, keyval, ierr
    integer(kind=8) :: extra, in, out
    logical :: flag
    copies = copies + 1
    out = in + 1
    flag = .true.
    ierr = 0
    if (extra /= 77 .or. comm == keyval) ierr = 1
  end subroutine

  subroutine delete_attr(comm, keyval, value, extra, ierr)
    integer :: comm, keyval, ierr
    integer(kind=8) :: value, extra
    deletions = deletions + 1
    ierr = 0
    if (extra /= 77 .or. value < 0 .or. comm == keyval) ierr = 1
  end subroutine

  subroutine on_error(comm, code)
    integer :: comm, code
    if (code /= 0 .and. comm /= 0) errors = errors + 1
  end subroutine
end module

program fortran
#ifdef BINDING_MODULE
  use mpi
#endif
  use callbacks
  use, intrinsic :: iso_c_binding
  implicit none
#ifndef BINDING_MODULE
  include 'mpif.h'
#endif
  interface
    integer(c_int) function checkpoint(state) bind(C, name="MPIX_Checkpoint")
      import
      integer(c_int) :: state
    end function
  end interface
  integer :: ierr, me, n, right, left, twice, vector, dup, half, cart, graph, keyval, handler, info
  integer :: world_group, group, aint_type, persistent
  integer(c_int) :: state
  integer(kind=MPI_ADDRESS_KIND) :: address
  character(len=16) :: argument
  integer, target :: cell
  integer, asynchronous :: got(6) ! receive buffer of requests

  call mpi_init(ierr)
  call mpi_comm_rank(MPI_COMM_WORLD, me, ierr)
  call mpi_comm_size(MPI_COMM_WORLD, n, ierr)
  right = mod(me + 1, n)
  left = mod(me + n - 1, n)

  call make()
  call check()
  call get_command_argument(1, argument)
  state = -1
  if (argument == 'save') then
    if (checkpoint(state) /= 0) call fail('MPIX_Checkpoint')
    call check()
  end if
  call release()
  call mpi_finalize(ierr)
  if (me == 0) then
    if (state == 2) then
      print '(a)', 'fortran: ok, restarted'
    else if (state == 1) then
      print '(a)', 'fortran: ok, saved'
    else
      print '(a)', 'fortran: ok'
    end if
  end if

contains

  subroutine fail(what)
    character(len=*), intent(in) :: what
    integer :: e
    print '(a,i0,2a)', 'fortran: rank ', me, ': ', what
    call mpi_abort(MPI_COMM_WORLD, 1, e)
  end subroutine

  subroutine want(ok, what)
    logical, intent(in) :: ok
    character(len=*), intent(in) :: what
    if (.not. ok .or. ierr /= MPI_SUCCESS) call fail(what)
  end subroutine

  subroutine make()
    integer :: color, degrees(1), other(1)
    logical :: periods(1)
    call mpi_op_create(add_twice, .true., twice, ierr)
    call want(.true., 'mpi_op_create')
    call mpi_type_vector(3, 1, 2, MPI_INTEGER, vector, ierr)
    call mpi_type_commit(vector, ierr)
    call mpi_get_address(cell, address, ierr)
    call mpi_type_create_hindexed(1, (/1/), (/address/), MPI_INTEGER, aint_type, ierr)
    call mpi_type_commit(aint_type, ierr)
    call want(.true., 'mpi_type_create_hindexed')

    call mpi_comm_create_keyval(copy_attr, delete_attr, keyval, 77_MPI_ADDRESS_KIND, ierr)
    call want(.true., 'mpi_comm_create_keyval')
    call mpi_comm_set_attr(MPI_COMM_WORLD, keyval, 4000000000_MPI_ADDRESS_KIND, ierr)
    call mpi_comm_dup(MPI_COMM_WORLD, dup, ierr)
    call want(copies == 1, 'copy function of an attribute')
    call mpi_comm_set_name(dup, 'a name  ', ierr)
    color = mod(me, 2)
    call mpi_comm_split(MPI_COMM_WORLD, color, -me, half, ierr)
    periods(1) = .true.
    call mpi_cart_create(MPI_COMM_WORLD, 1, (/n/), periods, .false., cart, ierr)
    degrees(1) = 1
    other(1) = right
    call mpi_dist_graph_create(MPI_COMM_WORLD, 1, (/me/), degrees, other, MPI_UNWEIGHTED, &
                               MPI_INFO_NULL, .false., graph, ierr)
    call want(.true., 'mpi_dist_graph_create')

    call mpi_comm_create_errhandler(on_error, handler, ierr)
    call mpi_comm_set_errhandler(dup, handler, ierr)
    call mpi_info_create(info, ierr)
    call mpi_info_set(info, 'key', ' value ', ierr)
    call mpi_comm_group(MPI_COMM_WORLD, world_group, ierr)
    call mpi_group_incl(world_group, 2, (/1, 0/), group, ierr)
    call want(group /= MPI_GROUP_NULL, 'mpi_group_incl')
  end subroutine

  logical function has(text, word)
    character(len=*), intent(in) :: text, word
    has = index(text, word) > 0
  end function

  subroutine check()
    integer :: total, i, status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE, 2)
    integer :: requests(2), index, length, r, before, buffer(6), count, done, indices(2)
    integer(kind=MPI_ADDRESS_KIND) :: value
    logical :: flag
    character(len=MPI_MAX_OBJECT_NAME) :: name
    character(len=10) :: text
    character(len=MPI_MAX_ERROR_STRING) :: message
    character(len=MPI_MAX_PROCESSOR_NAME) :: host
    character(len=MPI_MAX_LIBRARY_VERSION_STRING) :: version

    total = me + 1
    call mpi_allreduce(MPI_IN_PLACE, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    call want(total == n * (n + 1) / 2, 'mpi_allreduce in place')
    buffer(1) = 1
    call mpi_reduce(buffer, got, 1, MPI_INTEGER, twice, 0, dup, ierr)
    call want(me /= 0 .or. got(1) > n - 1, 'operation of Fortran')
    call to_each()

    buffer = (/ (10 * me + i, i = 1, 6) /)
    got = 0
    call mpi_irecv(got, 6, MPI_INTEGER, left, 5, dup, requests(1), ierr)
    call mpi_isend(buffer, 1, vector, right, 5, dup, requests(2), ierr)
    call mpi_waitall(2, requests, statuses, ierr)
    call want(requests(1) == MPI_REQUEST_NULL .and. requests(2) == MPI_REQUEST_NULL, 'mpi_waitall')
    call want(statuses(MPI_SOURCE, 1) == left .and. statuses(MPI_TAG, 1) == 5, 'status of mpi_waitall')
    call mpi_get_count(statuses(:, 1), MPI_INTEGER, count, ierr)
    call want(count == 3, 'mpi_get_count')
    call want(all(got(1:3) == (/10 * left + 1, 10 * left + 3, 10 * left + 5/)), 'vector')

    call mpi_irecv(got, 1, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, half, requests(1), ierr)
    requests(2) = MPI_REQUEST_NULL
    call mpi_comm_rank(half, r, ierr)
    call mpi_comm_size(half, length, ierr)
    call mpi_send(me, 1, MPI_INTEGER, mod(r + 1, length), 6, half, ierr)
    call mpi_waitany(2, requests, index, status, ierr)
    call want(index == 1 .and. status(MPI_TAG) == 6, 'mpi_waitany')
    call mpi_waitany(2, requests, index, MPI_STATUS_IGNORE, ierr)
    call want(index < 0, 'mpi_waitany without requests') ! MPICH adds 1 to MPI_UNDEFINED
    call mpi_testsome(2, requests, done, indices, MPI_STATUSES_IGNORE, ierr)
    call want(done == MPI_UNDEFINED, 'mpi_testsome without requests')

    ! An absolute address.
    cell = -1
    if (me == 0) cell = 99
    call mpi_bcast(MPI_BOTTOM, 1, aint_type, 0, MPI_COMM_WORLD, ierr)
    call want(cell == 99, 'MPI_BOTTOM')

    ! A persistent request: inactive ones are kept in the same variable.
    call mpi_recv_init(got, 1, MPI_INTEGER, left, 8, dup, persistent, ierr)
    do i = 1, 3
      call mpi_start(persistent, ierr)
      call mpi_send(me + i, 1, MPI_INTEGER, right, 8, dup, ierr)
      call mpi_wait(persistent, status, ierr)
      call want(got(1) == left + i .and. persistent /= MPI_REQUEST_NULL, 'persistent request')
    end do
    call mpi_request_free(persistent, ierr)
    call want(persistent == MPI_REQUEST_NULL, 'mpi_request_free')

    call mpi_comm_get_attr(MPI_COMM_WORLD, keyval, value, flag, ierr)
    call want(flag .and. value == 4000000000_MPI_ADDRESS_KIND, 'attribute')
    call mpi_comm_get_attr(dup, keyval, value, flag, ierr)
    call want(flag .and. value == 4000000001_MPI_ADDRESS_KIND, 'copied attribute')
    call mpi_comm_get_attr(half, keyval, value, flag, ierr)
    call want(.not. flag, 'attribute that is not there')
    call mpi_comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, value, flag, ierr)
    call want(flag .and. value >= 32767, 'MPI_TAG_UB')

    call mpi_comm_get_name(dup, name, length, ierr)
    call want(name == 'a name' .and. length == 6, 'mpi_comm_get_name')
    call mpi_info_get(info, 'key', 10, text, flag, ierr)
    call want(flag .and. text == 'value', 'mpi_info_get')
    call mpi_cart_coords(cart, me, 1, got, ierr)
    call want(got(1) == me, 'mpi_cart_coords')
    call mpi_cart_shift(cart, 0, 1, got(1), got(2), ierr)
    call want(got(1) == left .and. got(2) == right, 'mpi_cart_shift')
    call mpi_neighbor_allgather(me, 1, MPI_INTEGER, got, 1, MPI_INTEGER, graph, ierr)
    call want(got(1) == left, 'mpi_neighbor_allgather')
    call mpi_group_translate_ranks(group, 2, (/0, 1/), world_group, got, ierr)
    call want(got(1) == 1 .and. got(2) == 0, 'mpi_group_translate_ranks')

    before = errors
    call mpi_send(me, 1, MPI_INTEGER, n + 7, 0, dup, ierr)
    if (errors /= before + 1) call fail('error handler of Fortran')
    if (ierr == MPI_SUCCESS) then
      ! MPICH 5 says so by itself when a handler was called.
      call mpi_get_library_version(version, length, ierr)
      if (.not. has(version, 'MPICH') .or. .not. has(version, '5.')) call fail('no error after the handler')
    else
      call mpi_error_class(ierr, index, length)
      call mpi_error_string(ierr, message, length, ierr)
      call want(index == MPI_ERR_RANK .and. length > 0 .and. message(length:length) /= ' ', 'mpi_error_string')
    end if
    call mpi_get_processor_name(host, length, ierr)
    call want(len_trim(host) == length, 'mpi_get_processor_name')
    call mpi_get_library_version(version, length, ierr)
    call want(len_trim(version) > 0, 'mpi_get_library_version')
    call want(mpi_wtime() >= 0 .and. mpi_wtick() > 0, 'mpi_wtime')
    call mpi_initialized(flag, ierr)
    call want(flag, 'mpi_initialized')
  end subroutine

  ! Rank r sends 100 r + i to rank i; then each gives back what it got, in place.
  subroutine to_each()
    integer :: ones(n), bytes(n), types(n), from(n), i, request
    integer, asynchronous :: to(n)
    ones = 1
    bytes = (/ (4 * i, i = 0, n - 1) /)
    types = MPI_INTEGER
    from = (/ (100 * me + i, i = 0, n - 1) /)
    to = -1
    call mpi_alltoallw(from, ones, bytes, types, to, ones, bytes, types, dup, ierr)
    call want(all(to == (/ (100 * i + me, i = 0, n - 1) /)), 'mpi_alltoallw')
    call mpi_alltoallw(MPI_IN_PLACE, ones, bytes, types, to, ones, bytes, types, dup, ierr)
    call want(all(to == from), 'mpi_alltoallw in place')
    to = -1
    call mpi_ialltoallw(from, ones, bytes, types, to, ones, bytes, types, dup, request, ierr)
    call want(.true., 'mpi_ialltoallw')
    call mpi_wait(request, MPI_STATUS_IGNORE, ierr)
    call want(all(to == (/ (100 * i + me, i = 0, n - 1) /)), 'mpi_ialltoallw, completed')
  end subroutine

  subroutine release()
    call mpi_comm_free(dup, ierr)
    call want(dup == MPI_COMM_NULL .and. deletions == 1, 'mpi_comm_free')
    call mpi_comm_free(half, ierr)
    call mpi_comm_free(cart, ierr)
    call mpi_comm_free(graph, ierr)
    call mpi_comm_delete_attr(MPI_COMM_WORLD, keyval, ierr)
    call mpi_comm_free_keyval(keyval, ierr)
    call want(deletions == 2 .and. keyval == MPI_KEYVAL_INVALID, 'mpi_comm_free_keyval')
    call mpi_errhandler_free(handler, ierr)
    call mpi_type_free(vector, ierr)
    call mpi_type_free(aint_type, ierr)
    call mpi_op_free(twice, ierr)
    call mpi_info_free(info, ierr)
    call mpi_group_free(group, ierr)
    call mpi_group_free(world_group, ierr)
    call want(twice == MPI_OP_NULL .and. vector == MPI_DATATYPE_NULL .and. info == MPI_INFO_NULL, 'freed handles')
  end subroutine
end program
