! SPDX-License-Identifier: Apache-2.0
!
! More objects made in Fortran: parameterized types, operations on derived types, generalized requests,
! attributes with copy and delete functions on each sort of object, windows, files, persistent and
! pending requests. Made, checked, saved when the argument is "save", and checked again with all that
! can be made from them. BINDING_MODULE: "use mpi", else mpif.h.

module zoo_callbacks
  use, intrinsic :: iso_c_binding
  implicit none
  integer :: copies(3) = 0, deletions(3) = 0, old_copies = 0, old_deletions = 0
  integer :: window_errors = 0, file_errors = 0, queries = 0, frees = 0, cancels = 0
  type, bind(C) :: place
    real(c_double) :: value
    integer(c_int) :: where
  end type
contains
  ! The larger value, and of equal ones the smaller place.
  subroutine larger(a, b, n, datatype)
    integer :: n, datatype, i
    type(place) :: a(n), b(n)
    do i = 1, n
      if (a(i)%value > b(i)%value .or. (a(i)%value == b(i)%value .and. a(i)%where < b(i)%where)) b(i) = a(i)
    end do
    if (datatype == 0) stop 3
  end subroutine

  ! Does not commute: what came first is multiplied by 10.
  subroutine digits(a, b, n, datatype)
    integer :: n, datatype, i
    real(c_double) :: a(2, n), b(2, n)
    do i = 1, n
      b(1, i) = a(1, i) * b(2, i) + b(1, i)
      b(2, i) = a(2, i) * b(2, i)
    end do
    if (datatype == 0) stop 3
  end subroutine

  subroutine copy_any(sort, extra, in, out, flag, ierr)
    integer :: sort, ierr
    integer(kind=8) :: extra, in, out
    logical :: flag
    copies(sort) = copies(sort) + 1
    out = in + extra
    flag = in /= 666
    ierr = merge(0, 1, extra == 100 + sort)
  end subroutine

  subroutine copy_comm(object, keyval, extra, in, out, flag, ierr)
    integer :: object, keyval, ierr
    integer(kind=8) :: extra, in, out
    logical :: flag
    call copy_any(1, extra, in, out, flag, ierr)
    if (object == keyval) ierr = 1
  end subroutine

  subroutine copy_type(object, keyval, extra, in, out, flag, ierr)
    integer :: object, keyval, ierr
    integer(kind=8) :: extra, in, out
    logical :: flag
    call copy_any(2, extra, in, out, flag, ierr)
    if (object == keyval) ierr = 1
  end subroutine

  subroutine delete_comm(object, keyval, value, extra, ierr)
    integer :: object, keyval, ierr
    integer(kind=8) :: value, extra
    deletions(1) = deletions(1) + 1
    ierr = merge(0, 1, extra == 101 .and. value >= 0 .and. object /= keyval)
  end subroutine

  subroutine delete_type(object, keyval, value, extra, ierr)
    integer :: object, keyval, ierr
    integer(kind=8) :: value, extra
    deletions(2) = deletions(2) + 1
    ierr = merge(0, 1, extra == 102 .and. value >= 0 .and. object /= keyval)
  end subroutine

  subroutine delete_win(object, keyval, value, extra, ierr)
    integer :: object, keyval, ierr
    integer(kind=8) :: value, extra
    deletions(3) = deletions(3) + 1
    ierr = merge(0, 1, extra == 103 .and. value >= 0 .and. object /= keyval)
  end subroutine

  ! Those of mpi_keyval_create have default integers.
  subroutine old_copy(object, keyval, extra, in, out, flag, ierr)
    integer :: object, keyval, extra, in, out, ierr
    logical :: flag
    old_copies = old_copies + 1
    out = in + extra
    flag = .true.
    ierr = merge(0, 1, extra == 9 .and. object /= keyval)
  end subroutine

  subroutine old_delete(object, keyval, value, extra, ierr)
    integer :: object, keyval, value, extra, ierr
    old_deletions = old_deletions + 1
    ierr = merge(0, 1, extra == 9 .and. value /= 0 .and. object /= keyval)
  end subroutine

  subroutine on_window_error(win, code)
    integer :: win, code
    if (code /= 0 .and. win /= 0) window_errors = window_errors + 1
  end subroutine

  subroutine on_file_error(file, code)
    integer :: file, code
    if (code /= 0 .and. file /= code) file_errors = file_errors + 1
  end subroutine
end module

program fortranzoo
#ifdef BINDING_MODULE
  use mpi
#endif
  use zoo_callbacks
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
  external :: query, free_state, cancel
  integer, parameter :: cells = 6
  integer(kind=MPI_ADDRESS_KIND), parameter :: zero = 0
  integer :: ierr, me, n, left, right
  integer(c_int) :: state
  character(len=16) :: argument
  ! types
  integer :: real12, complex12, integer9, pair, row, block, places, matched
  ! the others
  integer :: best, chain, comm, old, dup_keyval, keyvals(3), win, win_handler, file, file_handler, info
  integer :: persistent(2), pending, generalized, rows
  character(len=256) :: name_of_file
  integer, asynchronous :: memory(cells) = 0, from(4) = -1, mine(4)
  integer(kind=MPI_ADDRESS_KIND) :: extra

  call mpi_init(ierr)
  call mpi_comm_rank(MPI_COMM_WORLD, me, ierr)
  call mpi_comm_size(MPI_COMM_WORLD, n, ierr)
  right = mod(me + 1, n)
  left = mod(me + n - 1, n)
  call make()
  call check(1)
  call get_command_argument(1, argument)
  state = -1
  if (argument == 'save') then
    call before()
    if (checkpoint(state) /= 0) call fail('MPIX_Checkpoint')
    call after()
    call check(2)
  end if
  call release()
  call mpi_finalize(ierr)
  if (me == 0) then
    if (state == 2) then
      print '(a)', 'fortranzoo: ok, restarted'
    else if (state == 1) then
      print '(a)', 'fortranzoo: ok, saved'
    else
      print '(a)', 'fortranzoo: ok'
    end if
  end if

contains

  subroutine fail(what)
    character(len=*), intent(in) :: what
    integer :: e
    print '(a,i0,2a,i0)', 'fortranzoo: rank ', me, ': ', what, ierr
    call mpi_abort(MPI_COMM_WORLD, 1, e)
  end subroutine

  subroutine want(ok, what)
    logical, intent(in) :: ok
    character(len=*), intent(in) :: what
    if (.not. ok .or. ierr /= MPI_SUCCESS) call fail(what)
  end subroutine

  subroutine make()
    integer(kind=MPI_ADDRESS_KIND) :: at(2)
    integer :: inner
    external :: MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, MPI_WIN_NULL_COPY_FN
    call mpi_type_create_f90_real(12, MPI_UNDEFINED, real12, ierr)
    call want(.true., 'mpi_type_create_f90_real')
    call mpi_type_create_f90_complex(12, 100, complex12, ierr)
    call want(.true., 'mpi_type_create_f90_complex')
    call mpi_type_create_f90_integer(9, integer9, ierr)
    call want(.true., 'mpi_type_create_f90_integer')
    call mpi_type_contiguous(2, real12, pair, ierr)
    call mpi_type_commit(pair, ierr)
    call mpi_type_vector(3, 1, 2, complex12, row, ierr)
    call mpi_type_commit(row, ierr)
    call mpi_type_create_subarray(2, (/4, 3/), (/2, 2/), (/1, 1/), MPI_ORDER_FORTRAN, integer9, block, ierr)
    call mpi_type_commit(block, ierr)
    at = (/zero, 8 + zero/)
    call mpi_type_create_struct(2, (/1, 1/), at, (/real12, integer9/), inner, ierr)
    call mpi_type_create_resized(inner, zero, 16 + zero, places, ierr)
    call mpi_type_commit(places, ierr)
    call mpi_type_free(inner, ierr)
    call mpi_type_match_size(MPI_TYPECLASS_REAL, 8, matched, ierr)
    call want(.true., 'mpi_type_match_size')
    call mpi_op_create(larger, .true., best, ierr)
    call mpi_op_create(digits, .false., chain, ierr)
    call want(.true., 'mpi_op_create')

    call mpi_comm_dup(MPI_COMM_WORLD, comm, ierr)
    call mpi_comm_create_keyval(copy_comm, delete_comm, keyvals(1), 101_MPI_ADDRESS_KIND, ierr)
    call mpi_type_create_keyval(copy_type, delete_type, keyvals(2), 102_MPI_ADDRESS_KIND, ierr)
    call mpi_win_create_keyval(MPI_WIN_NULL_COPY_FN, delete_win, keyvals(3), 103_MPI_ADDRESS_KIND, ierr)
    call mpi_comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, dup_keyval, zero, ierr)
    call mpi_keyval_create(old_copy, old_delete, old, 9, ierr)
    call want(.true., 'mpi_keyval_create')
    call mpi_comm_set_attr(comm, keyvals(1), 5000000000_MPI_ADDRESS_KIND, ierr)
    call mpi_comm_set_attr(comm, dup_keyval, 7_MPI_ADDRESS_KIND, ierr)
    call mpi_attr_put(comm, old, 1000, ierr)
    call mpi_type_set_attr(places, keyvals(2), 6000000000_MPI_ADDRESS_KIND, ierr)
    call mpi_type_set_name(places, 'places', ierr)
    call mpi_win_create(memory, cells * 4 + zero, 4, MPI_INFO_NULL, comm, win, ierr)
    call want(.true., 'mpi_win_create')
    call mpi_win_set_attr(win, keyvals(3), 8000000000_MPI_ADDRESS_KIND, ierr)
    call mpi_win_set_name(win, 'window', ierr)
    call mpi_win_create_errhandler(on_window_error, win_handler, ierr)
    call mpi_win_set_errhandler(win, win_handler, ierr)
    call want(.true., 'mpi_win_set_errhandler')

    call mpi_info_create(info, ierr)
    call mpi_info_set(info, 'name', 'of Fortran', ierr)
    call get_environment_variable('ZOO_FILE', name_of_file)
    call mpi_file_open(comm, name_of_file, MPI_MODE_CREATE + MPI_MODE_RDWR + MPI_MODE_DELETE_ON_CLOSE, &
                       MPI_INFO_NULL, file, ierr)
    call want(.true., 'mpi_file_open')
    call mpi_file_create_errhandler(on_file_error, file_handler, ierr)
    call mpi_file_set_errhandler(file, file_handler, ierr)
    call mpi_type_vector(4, 1, n, real12, rows, ierr)
    call mpi_type_commit(rows, ierr)
    call mpi_file_set_view(file, int(8 * me, MPI_OFFSET_KIND), real12, rows, 'native', MPI_INFO_NULL, ierr)
    call want(.true., 'mpi_file_set_view')
  end subroutine

  ! What is under way while the image is made.
  subroutine before()
    integer :: status(MPI_STATUS_SIZE)
    call mpi_recv_init(from(1), 1, integer9, left, 21, comm, persistent(1), ierr)
    call mpi_send_init(mine(1), 1, integer9, right, 21, comm, persistent(2), ierr)
    call mpi_start(persistent(1), ierr) ! active; the other one is not
    call mpi_irecv(from(2), 1, integer9, left, 22, comm, pending, ierr)
    call mpi_send(me, 1, MPI_INTEGER, right, 23, comm, ierr) ! nobody has asked for it
    extra = me + 40
    call mpi_grequest_start(query, free_state, cancel, extra, generalized, ierr)
    call mpi_grequest_complete(generalized, ierr)
    call want(.true., 'mpi_grequest_complete')
    call mpi_send(me, 1, MPI_INTEGER, MPI_PROC_NULL, 0, comm, ierr)
    status = 0
  end subroutine

  subroutine after()
    integer :: status(MPI_STATUS_SIZE), count, i
    mine(1) = 100 + me
    call mpi_start(persistent(2), ierr)
    call mpi_waitall(2, persistent, MPI_STATUSES_IGNORE, ierr)
    call want(from(1) == 100 + left, 'persistent requests')
    do i = 1, 2
      call mpi_startall(2, persistent, ierr)
      call mpi_waitall(2, persistent, MPI_STATUSES_IGNORE, ierr)
      call want(from(1) == 100 + left, 'persistent requests again')
    end do
    call mpi_request_free(persistent(1), ierr)
    call mpi_request_free(persistent(2), ierr)
    call mpi_send(200 + me, 1, MPI_INTEGER, right, 22, comm, ierr)
    call mpi_wait(pending, status, ierr)
    call want(from(2) == 200 + left .and. status(MPI_SOURCE) == left .and. pending == MPI_REQUEST_NULL, 'pending receive')
    call mpi_recv(from(3), 1, integer9, MPI_ANY_SOURCE, 23, comm, status, ierr)
    call want(from(3) == left .and. status(MPI_SOURCE) == left, 'message under way')
    i = frees
    call mpi_wait(generalized, status, ierr)
    call want(generalized == MPI_REQUEST_NULL .and. frees == i + 1 .and. queries > 0, 'generalized request')
    call mpi_get_count(status, MPI_INTEGER, count, ierr)
    call want(count == me + 40 .and. status(MPI_TAG) == 17, 'status of a generalized request')
  end subroutine

  subroutine check(round)
    integer, intent(in) :: round
    call check_types()
    call check_operations()
    call check_attributes()
    call check_window(round)
    call check_file(round)
    call check_grequest()
  end subroutine

  subroutine check_types()
    integer :: status(MPI_STATUS_SIZE), size, ni, na, nd, combiner, same, i, ints(2), types(1), requests(2), length
    integer(kind=MPI_ADDRESS_KIND) :: addresses(1)
    real(kind=8) :: out(2), in(2)
    complex(kind=8) :: cout(6), cin(6)
    integer :: grid(4, 3), got(4, 3)
    character(len=MPI_MAX_OBJECT_NAME) :: name
    call mpi_type_size(real12, size, ierr)
    call want(size == 8, 'size of a real type')
    call mpi_type_size(complex12, size, ierr)
    call want(size == 16, 'size of a complex type')
    call mpi_type_size(integer9, size, ierr)
    call want(size == 4, 'size of an integer type')
    call mpi_type_size(matched, size, ierr)
    call want(size == 8, 'size of a matched type')
    call mpi_type_get_envelope(real12, ni, na, nd, combiner, ierr)
    call want(combiner == MPI_COMBINER_F90_REAL .and. ni == 2 .and. na == 0 .and. nd == 0, 'envelope of a real type')
    call mpi_type_get_contents(real12, 2, 0, 0, ints, addresses, types, ierr)
    call want(ints(1) == 12 .and. ints(2) == MPI_UNDEFINED, 'contents of a real type')
    call mpi_type_get_envelope(integer9, ni, na, nd, combiner, ierr)
    call want(combiner == MPI_COMBINER_F90_INTEGER .and. ni == 1, 'envelope of an integer type')
    call mpi_type_create_f90_complex(12, 100, same, ierr)
    call want(same == complex12, 'the same complex type')
    call mpi_type_get_name(places, name, length, ierr)
    call want(name == 'places' .and. length == 6, 'name of a type')

    out = (/me + 0.5d0, me + 0.25d0/)
    call mpi_irecv(in, 1, pair, left, 1, comm, requests(1), ierr)
    call mpi_isend(out, 2, real12, right, 1, comm, requests(2), ierr)
    call mpi_waitall(2, requests, MPI_STATUSES_IGNORE, ierr)
    call want(all(in == (/left + 0.5d0, left + 0.25d0/)), 'real types')
    cout = (/(cmplx(me, i, 8), i = 1, 6)/)
    cin = 0
    call mpi_sendrecv(cout, 1, row, right, 2, cin, 3, complex12, left, 2, comm, status, ierr)
    call want(all(cin(1:3) == (/(cmplx(left, i, 8), i = 1, 5, 2)/)) .and. cin(4) == 0, 'complex types')
    grid = reshape((/(100 * me + i, i = 1, 12)/), (/4, 3/))
    got = 0
    call mpi_sendrecv(grid, 1, block, right, 3, got, 1, block, left, 3, comm, status, ierr)
    call want(all(got(2:3, 2:3) == reshape((/6, 7, 10, 11/) + 100 * left, (/2, 2/))) .and. got(1, 1) == 0, 'block')
  end subroutine

  subroutine check_operations()
    type(place) :: one(2), all_of(2), shared(1)
    real(kind=8) :: digit(2), number(2), expected
    integer :: i
    one(1) = place(mod(me * 7, n) * 1.5d0, me)
    one(2) = place(3d0, me)
    call mpi_allreduce(one, all_of, 2, places, best, comm, ierr)
    call want(all_of(1)%value == (n - 1) * 1.5d0 .and. mod(all_of(1)%where * 7, n) == n - 1, 'operation on a struct')
    call want(all_of(2)%value == 3d0 .and. all_of(2)%where == 0, 'operation on equal ones')
    call mpi_reduce_local(one, all_of, 1, places, best, ierr)
    call want(all_of(1)%value == (n - 1) * 1.5d0, 'mpi_reduce_local')
    call mpi_scan(one(2:2), shared, 1, places, best, comm, ierr)
    call want(shared(1)%where == 0, 'mpi_scan')
    digit = (/me + 1d0, 10d0/)
    call mpi_allreduce(digit, number, 1, pair, chain, comm, ierr)
    expected = 0
    do i = 1, n
      expected = expected * 10 + i
    end do
    call want(number(1) == expected .and. number(2) == 10d0**n, 'operation that does not commute')
  end subroutine

  subroutine check_attributes()
    integer :: dup, copy, value, before_copies(3), before_deletions(3), length, other(2)
    integer(kind=MPI_ADDRESS_KIND) :: big
    logical :: flag
    character(len=MPI_MAX_OBJECT_NAME) :: name
    before_copies = copies
    before_deletions = deletions
    other = (/old_copies, old_deletions/)
    call mpi_comm_dup(comm, dup, ierr)
    call want(copies(1) == before_copies(1) + 1 .and. old_copies == other(1) + 1, 'copy functions of a communicator')
    call mpi_comm_get_attr(dup, keyvals(1), big, flag, ierr)
    call want(flag .and. big == 5000000101_MPI_ADDRESS_KIND, 'copied attribute')
    call mpi_comm_get_attr(dup, dup_keyval, big, flag, ierr)
    call want(flag .and. big == 7, 'attribute of MPI_COMM_DUP_FN')
    call mpi_attr_get(dup, old, value, flag, ierr)
    call want(flag .and. value == 1009, 'attribute of mpi_attr_put')
    call mpi_comm_set_attr(dup, keyvals(1), 1_MPI_ADDRESS_KIND, ierr)
    call want(deletions(1) == before_deletions(1) + 1, 'delete function when a value is replaced')
    call mpi_comm_free(dup, ierr)
    call want(deletions(1) == before_deletions(1) + 2 .and. old_deletions == other(2) + 1, 'delete functions')

    call mpi_type_dup(places, copy, ierr)
    call want(copies(2) == before_copies(2) + 1, 'copy function of a type')
    call mpi_type_get_attr(copy, keyvals(2), big, flag, ierr)
    call want(flag .and. big == 6000000102_MPI_ADDRESS_KIND, 'copied attribute of a type')
    call mpi_type_free(copy, ierr)
    call want(deletions(2) == before_deletions(2) + 1, 'delete function of a type')

    call mpi_win_get_attr(win, keyvals(3), big, flag, ierr)
    call want(flag .and. big == 8000000000_MPI_ADDRESS_KIND, 'attribute of a window')
    call mpi_win_get_attr(win, MPI_WIN_SIZE, big, flag, ierr)
    call want(flag .and. big == cells * 4, 'MPI_WIN_SIZE')
    call mpi_win_get_attr(win, MPI_WIN_DISP_UNIT, big, flag, ierr)
    call want(flag .and. big == 4, 'MPI_WIN_DISP_UNIT')
    call mpi_win_get_name(win, name, length, ierr)
    call want(name == 'window', 'name of a window')
  end subroutine

  subroutine check_window(round)
    integer, intent(in) :: round
    integer :: e, errors, value
    value = 1000 * round + me
    call mpi_win_fence(0, win, ierr)
    call mpi_put(value, 1, integer9, right, 2 + zero, 1, integer9, win, ierr)
    call mpi_accumulate(round, 1, MPI_INTEGER, 0, 4 + zero, 1, MPI_INTEGER, MPI_SUM, win, ierr)
    call mpi_win_fence(0, win, ierr)
    call want(memory(3) == 1000 * round + left, 'mpi_put')
    call want(me /= 0 .or. memory(5) == n * round * (round + 1) / 2, 'mpi_accumulate')
    errors = window_errors
    call mpi_win_fence(0, win, ierr)
    call mpi_put(value, 1, MPI_INTEGER, n + 9, zero, 1, MPI_INTEGER, win, e)
    call want(e /= MPI_SUCCESS .and. window_errors == errors + 1, 'error handler of a window')
    call mpi_win_fence(0, win, ierr)
  end subroutine

  subroutine check_file(round)
    integer, intent(in) :: round
    integer :: status(MPI_STATUS_SIZE), e, errors, length
    integer(kind=MPI_OFFSET_KIND) :: offset
    real(kind=8) :: out(2), in(4)
    logical :: flag
    character(len=20) :: text
    out = (/10d0 * me + 2 * round - 1, 10d0 * me + 2 * round/)
    call mpi_file_write_all(file, out, 2, real12, status, ierr)
    call want(.true., 'mpi_file_write_all')
    call mpi_file_get_position(file, offset, ierr)
    call want(offset == 2 * round, 'position in a file')
    in = -1
    call mpi_file_read_at_all(file, int(0, MPI_OFFSET_KIND), in, 2 * round, real12, status, ierr)
    call want(in(1) == 10d0 * me + 1 .and. in(2 * round) == 10d0 * me + 2 * round, 'mpi_file_read_at_all')
    errors = file_errors
    call mpi_file_seek(file, int(-100, MPI_OFFSET_KIND), MPI_SEEK_SET, e)
    call want(e /= MPI_SUCCESS .and. file_errors == errors + 1, 'error handler of a file')
    call mpi_info_get_valuelen(info, 'name', length, flag, ierr)
    call mpi_info_get(info, 'name', 20, text, flag, ierr)
    call want(flag .and. text == 'of Fortran' .and. length == 10, 'info')
  end subroutine

  subroutine check_grequest()
    integer :: request, status(MPI_STATUS_SIZE), count, before_frees, before_cancels
    logical :: flag
    before_frees = frees
    before_cancels = cancels
    extra = 3
    call mpi_grequest_start(query, free_state, cancel, extra, request, ierr)
    call mpi_test(request, flag, status, ierr)
    call want(.not. flag, 'mpi_test of a generalized request')
    call mpi_cancel(request, ierr)
    call want(cancels == before_cancels + 1, 'mpi_cancel of a generalized request')
    call mpi_grequest_complete(request, ierr)
    call mpi_wait(request, status, ierr)
    call want(frees == before_frees + 1 .and. request == MPI_REQUEST_NULL, 'mpi_wait of a generalized request')
    call mpi_get_count(status, MPI_INTEGER, count, ierr)
    call want(count == 3, 'count of a generalized request')
  end subroutine

  subroutine release()
    integer :: deleted(3)
    deleted = deletions
    call mpi_file_close(file, ierr)
    call mpi_win_free(win, ierr)
    call want(deletions(3) == deleted(3) + 1, 'mpi_win_free')
    call mpi_type_free(places, ierr)
    call want(deletions(2) == deleted(2) + 1, 'mpi_type_free')
    deleted = deletions ! closing a file may have called the function, for a duplicate that MPI made
    call mpi_comm_free(comm, ierr)
    call want(deletions(1) == deleted(1) + 1, 'mpi_comm_free')
    call mpi_keyval_free(old, ierr)
    call mpi_comm_free_keyval(keyvals(1), ierr)
    call mpi_comm_free_keyval(dup_keyval, ierr)
    call mpi_type_free_keyval(keyvals(2), ierr)
    call mpi_win_free_keyval(keyvals(3), ierr)
    call mpi_errhandler_free(win_handler, ierr)
    call mpi_errhandler_free(file_handler, ierr)
    call mpi_op_free(best, ierr)
    call mpi_op_free(chain, ierr)
    call mpi_type_free(pair, ierr)
    call mpi_type_free(row, ierr)
    call mpi_type_free(block, ierr)
    call mpi_type_free(rows, ierr)
    call mpi_info_free(info, ierr)
    call want(pair == MPI_DATATYPE_NULL .and. best == MPI_OP_NULL, 'freed handles')
  end subroutine
end program

subroutine query(extra, status, ierr)
  use zoo_callbacks, only: queries
  implicit none
  include 'mpif.h'
  integer(kind=MPI_ADDRESS_KIND) :: extra
  integer :: status(MPI_STATUS_SIZE), ierr
  queries = queries + 1
  call mpi_status_set_elements(status, MPI_INTEGER, int(extra), ierr)
  call mpi_status_set_cancelled(status, .false., ierr)
  status(MPI_SOURCE) = 5
  status(MPI_TAG) = 17
  ierr = MPI_SUCCESS
end subroutine

subroutine free_state(extra, ierr)
  use zoo_callbacks, only: frees
  implicit none
  include 'mpif.h'
  integer(kind=MPI_ADDRESS_KIND) :: extra
  integer :: ierr
  if (extra > 0) frees = frees + 1
  ierr = MPI_SUCCESS
end subroutine

subroutine cancel(extra, complete, ierr)
  use zoo_callbacks, only: cancels
  implicit none
  include 'mpif.h'
  integer(kind=MPI_ADDRESS_KIND) :: extra
  logical :: complete
  integer :: ierr
  if (extra > 0 .and. .not. complete) cancels = cancels + 1
  ierr = MPI_SUCCESS
end subroutine
