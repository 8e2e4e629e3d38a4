! SPDX-License-Identifier: Apache-2.0
!
! More objects of the module mpi_f08: parameterized types, operations on derived types, attributes with
! copy and delete functions, error handlers, generalized and persistent requests. Made, checked, saved
! when the argument is "save", and checked again with all that can be made from them.

module zoo08_callbacks
  use mpi_f08
  use, intrinsic :: iso_c_binding
  implicit none
  integer :: copies = 0, deletions = 0, errors = 0, queries = 0, frees = 0, cancels = 0
contains
  ! The product of 2 x 2 matrices, which does not commute.
  subroutine product_of(invec, inoutvec, n, datatype)
    type(c_ptr), value :: invec, inoutvec
    integer :: n, i
    type(MPI_Datatype) :: datatype
    real(c_double), pointer :: a(:, :, :), b(:, :, :)
    call c_f_pointer(invec, a, (/2, 2, n/))
    call c_f_pointer(inoutvec, b, (/2, 2, n/))
    do i = 1, n
      b(:, :, i) = matmul(a(:, :, i), b(:, :, i))
    end do
    if (datatype == MPI_DATATYPE_NULL) stop 3
  end subroutine

  subroutine copy_attr(comm, keyval, extra, in, out, flag, ierror)
    type(MPI_Comm) :: comm
    integer :: keyval, ierror
    integer(kind=MPI_ADDRESS_KIND) :: extra, in, out
    logical :: flag
    copies = copies + 1
    out = in + extra
    flag = .true.
    ierror = merge(MPI_SUCCESS, MPI_ERR_OTHER, extra == 44 .and. comm /= MPI_COMM_NULL .and. keyval /= 0)
  end subroutine

  subroutine delete_attr(comm, keyval, value, extra, ierror)
    type(MPI_Comm) :: comm
    integer :: keyval, ierror
    integer(kind=MPI_ADDRESS_KIND) :: value, extra
    deletions = deletions + 1
    ierror = merge(MPI_SUCCESS, MPI_ERR_OTHER, extra == 44 .and. value > 0 .and. comm /= MPI_COMM_NULL .and. keyval /= 0)
  end subroutine

  subroutine on_error(comm, code)
    type(MPI_Comm) :: comm
    integer :: code
    if (code /= MPI_SUCCESS .and. comm /= MPI_COMM_NULL) errors = errors + 1
  end subroutine

  subroutine query(extra, status, ierror)
    integer(kind=MPI_ADDRESS_KIND) :: extra
    type(MPI_Status) :: status
    integer :: ierror
    queries = queries + 1
    call MPI_Status_set_elements(status, MPI_INTEGER, int(extra))
    call MPI_Status_set_cancelled(status, .false.)
    status%MPI_SOURCE = 5
    status%MPI_TAG = 17
    ierror = MPI_SUCCESS
  end subroutine

  subroutine free_state(extra, ierror)
    integer(kind=MPI_ADDRESS_KIND) :: extra
    integer :: ierror
    if (extra > 0) frees = frees + 1
    ierror = MPI_SUCCESS
  end subroutine

  subroutine cancel(extra, complete, ierror)
    integer(kind=MPI_ADDRESS_KIND) :: extra
    logical :: complete
    integer :: ierror
    if (extra > 0 .and. .not. complete) cancels = cancels + 1
    ierror = MPI_SUCCESS
  end subroutine
end module

program fortran08zoo
  use zoo08_callbacks
  implicit none
  interface
    integer(c_int) function checkpoint(state) bind(C, name="MPIX_Checkpoint")
      import
      integer(c_int) :: state
    end function
  end interface
  integer :: me, n, left, right, keyval
  integer(c_int) :: state
  integer, asynchronous :: got(2) = -1, mine(2)
  integer(kind=MPI_ADDRESS_KIND), save :: extra
  character(len=16) :: argument
  type(MPI_Comm) :: comm
  type(MPI_Datatype) :: real12, integer9, matrix
  type(MPI_Op) :: chain
  type(MPI_Errhandler) :: handler
  type(MPI_Request) :: persistent(2), generalized

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, me)
  call MPI_Comm_size(MPI_COMM_WORLD, n)
  right = mod(me + 1, n)
  left = mod(me + n - 1, n)
  call make()
  call check()
  call get_command_argument(1, argument)
  state = -1
  if (argument == 'save') then
    call before()
    if (checkpoint(state) /= 0) call fail('MPIX_Checkpoint')
    call after()
    call check()
  end if
  call release()
  call MPI_Finalize()
  if (me /= 0) stop
  if (state == 2) then
    print '(a)', 'fortran08zoo: ok, restarted'
  else if (state == 1) then
    print '(a)', 'fortran08zoo: ok, saved'
  else
    print '(a)', 'fortran08zoo: ok'
  end if

contains

  subroutine fail(what)
    character(len=*), intent(in) :: what
    print '(a,i0,2a)', 'fortran08zoo: rank ', me, ': ', what
    call MPI_Abort(MPI_COMM_WORLD, 1)
  end subroutine

  subroutine want(ok, what)
    logical, intent(in) :: ok
    character(len=*), intent(in) :: what
    if (.not. ok) call fail(what)
  end subroutine

  subroutine make()
    call MPI_Type_create_f90_real(12, 100, real12)
    call MPI_Type_create_f90_integer(9, integer9)
    call MPI_Type_contiguous(4, real12, matrix)
    call MPI_Type_commit(matrix)
    call MPI_Op_create(product_of, .false., chain)
    call MPI_Comm_dup(MPI_COMM_WORLD, comm)
    call MPI_Comm_create_keyval(copy_attr, delete_attr, keyval, 44_MPI_ADDRESS_KIND)
    call MPI_Comm_set_attr(comm, keyval, 5000000000_MPI_ADDRESS_KIND)
    call MPI_Comm_create_errhandler(on_error, handler)
    call MPI_Comm_set_errhandler(comm, handler)
  end subroutine

  subroutine before()
    call MPI_Recv_init(got(1), 1, integer9, left, 21, comm, persistent(1))
    call MPI_Send_init(mine(1), 1, integer9, right, 21, comm, persistent(2))
    call MPI_Start(persistent(1)) ! active; the other one is not
    call MPI_Send(me, 1, MPI_INTEGER, right, 22, comm)
    extra = me + 40
    call MPI_Grequest_start(query, free_state, cancel, extra, generalized)
    call MPI_Grequest_complete(generalized)
  end subroutine

  subroutine after()
    type(MPI_Status) :: status
    integer :: count
    mine(1) = 100 + me
    call MPI_Start(persistent(2))
    call MPI_Waitall(2, persistent, MPI_STATUSES_IGNORE)
    call want(got(1) == 100 + left, 'persistent requests')
    call MPI_Request_free(persistent(1))
    call MPI_Request_free(persistent(2))
    call MPI_Recv(got(2), 1, integer9, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, status)
    call want(got(2) == left .and. status%MPI_SOURCE == left .and. status%MPI_TAG == 22, 'message under way')
    call MPI_Wait(generalized, status)
    call want(generalized == MPI_REQUEST_NULL .and. queries > 0, 'generalized request')
    call MPI_Get_count(status, MPI_INTEGER, count)
    call want(count == me + 40 .and. status%MPI_TAG == 17, 'status of a generalized request')
  end subroutine

  subroutine check()
    type(MPI_Comm) :: dup
    type(MPI_Datatype) :: same
    type(MPI_Request) :: request
    type(MPI_Status) :: status
    integer(kind=MPI_ADDRESS_KIND) :: value
    integer :: size, before_errors, counts(3), count, error, i
    real(c_double) :: one(2, 2), all_of(2, 2), expected(2, 2), other(2, 2)
    logical :: flag
    call MPI_Type_size(real12, size)
    call want(size == 8, 'size of a real type')
    call MPI_Type_create_f90_integer(9, same)
    call want(same == integer9, 'the same integer type')
    one = reshape((/1d0, me + 1d0, 0d0, 1d0 + mod(me, 2)/), (/2, 2/))
    call MPI_Allreduce(one, all_of, 1, matrix, chain, comm)
    expected = reshape((/1d0, 0d0, 0d0, 1d0/), (/2, 2/))
    do i = 0, n - 1
      expected = matmul(expected, reshape((/1d0, i + 1d0, 0d0, 1d0 + mod(i, 2)/), (/2, 2/)))
    end do
    call want(all(all_of == expected), 'operation that does not commute')
    call MPI_Sendrecv(one, 1, matrix, right, 1, other, 4, real12, left, 1, comm, status)
    call want(other(2, 1) == left + 1d0, 'real types')

    counts = (/copies, deletions, frees/)
    call MPI_Comm_dup(comm, dup)
    call MPI_Comm_get_attr(dup, keyval, value, flag)
    call want(flag .and. value == 5000000044_MPI_ADDRESS_KIND .and. copies == counts(1) + 1, 'copied attribute')
    call MPI_Comm_free(dup)
    call want(deletions == counts(2) + 1, 'delete function')
    before_errors = errors
    call MPI_Send(me, 1, MPI_INTEGER, n + 7, 0, comm, error)
    call want(error /= MPI_SUCCESS .and. errors == before_errors + 1, 'error handler')

    extra = 3
    call MPI_Grequest_start(query, free_state, cancel, extra, request)
    call MPI_Test(request, flag, status)
    call want(.not. flag, 'MPI_Test of a generalized request')
    call MPI_Cancel(request)
    call want(cancels > 0, 'MPI_Cancel of a generalized request')
    call MPI_Grequest_complete(request)
    call MPI_Wait(request, status)
    call MPI_Get_count(status, MPI_INTEGER, count)
    call want(count == 3 .and. frees == counts(3) + 1, 'generalized request')
  end subroutine

  subroutine release()
    integer :: deleted
    deleted = deletions
    call MPI_Comm_free(comm)
    call want(deletions == deleted + 1, 'MPI_Comm_free')
    call MPI_Comm_free_keyval(keyval)
    call MPI_Errhandler_free(handler)
    call MPI_Op_free(chain)
    call MPI_Type_free(matrix)
    call want(matrix == MPI_DATATYPE_NULL .and. chain == MPI_OP_NULL, 'freed handles')
  end subroutine
end program
