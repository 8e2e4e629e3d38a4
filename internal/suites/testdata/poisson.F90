! SPDX-License-Identifier: Apache-2.0
!
! Poisson's equation on a square by Jacobi's method: ranks in a grid, columns of halos as a datatype,
! the residual by a reduction of our own. BINDING: 0 mpif.h, 1 "use mpi", 2 "use mpi_f08".
#if BINDING == 2
#define HANDLE(kind) type(MPI_/**/kind)
#define STATUSES(name) type(MPI_Status) :: name(8)
#else
#define HANDLE(kind) integer
#define STATUSES(name) integer :: name(MPI_STATUS_SIZE, 8)
#endif

module reduction
#if BINDING == 2
  use mpi_f08
#elif BINDING == 1
  use mpi
#endif
  implicit none
#if BINDING == 0
  include 'mpif.h'
#endif
contains
  ! The larger of two residuals; a negative one says that a rank failed, and stays.
#if BINDING == 2
  subroutine worse(in, inout, n, datatype)
    use, intrinsic :: iso_c_binding, only: c_ptr, c_f_pointer
    type(c_ptr), value :: in, inout
    integer :: n
    type(MPI_Datatype) :: datatype
    double precision, pointer :: a(:), b(:)
    call c_f_pointer(in, a, [n])
    call c_f_pointer(inout, b, [n])
    if (datatype == MPI_DATATYPE_NULL) stop 3
#else
  subroutine worse(a, b, n, datatype)
    integer :: n, datatype
    double precision :: a(n), b(n)
    if (datatype == MPI_DATATYPE_NULL) stop 3
#endif
    where (a < 0 .or. b < 0)
      b = -1
    elsewhere
      b = max(a, b)
    end where
  end subroutine
end module

program poisson
  use reduction
  implicit none
  integer, parameter :: m = 24, steps = 200
  double precision :: u(0:m + 1, 0:m + 1), next(m, m), f(m, m), residual, sums(2), all(2)
  integer :: ierr, me, n, i, j, step, dims(2), at(2), left, right, below, above
  logical :: wraps(2), initialized
  HANDLE(Comm) :: grid
  HANDLE(Datatype) :: row
  HANDLE(Op) :: largest
  HANDLE(Request) :: requests(8)
  STATUSES(statuses)

  call MPI_Initialized(initialized, ierr)
  if (initialized) stop 4
  call MPI_Init(ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, n, ierr)
  dims = 0
  wraps = [.false., .true.]
  call MPI_Dims_create(n, 2, dims, ierr)
  call MPI_Cart_create(MPI_COMM_WORLD, 2, dims, wraps, .true., grid, ierr)
  call MPI_Comm_rank(grid, me, ierr)
  call MPI_Cart_coords(grid, me, 2, at, ierr)
  call MPI_Cart_shift(grid, 0, 1, left, right, ierr)
  call MPI_Cart_shift(grid, 1, 1, below, above, ierr)
  call MPI_Type_vector(m, 1, m + 2, MPI_DOUBLE_PRECISION, row, ierr)
  call MPI_Type_commit(row, ierr)
  call MPI_Op_create(worse, .true., largest, ierr)

  u = 0
  do j = 1, m
    do i = 1, m
      f(i, j) = sin(0.1d0 * (i + m * at(1))) * cos(0.05d0 * (j + m * at(2)))
    end do
  end do
  ! Columns lie together in memory, rows do not.
  call MPI_Recv_init(u(1, 0), m, MPI_DOUBLE_PRECISION, below, 1, grid, requests(1), ierr)
  call MPI_Recv_init(u(1, m + 1), m, MPI_DOUBLE_PRECISION, above, 2, grid, requests(2), ierr)
  call MPI_Recv_init(u(0, 1), 1, row, left, 3, grid, requests(3), ierr)
  call MPI_Recv_init(u(m + 1, 1), 1, row, right, 4, grid, requests(4), ierr)
  call MPI_Send_init(u(1, m), m, MPI_DOUBLE_PRECISION, above, 1, grid, requests(5), ierr)
  call MPI_Send_init(u(1, 1), m, MPI_DOUBLE_PRECISION, below, 2, grid, requests(6), ierr)
  call MPI_Send_init(u(m, 1), 1, row, right, 3, grid, requests(7), ierr)
  call MPI_Send_init(u(1, 1), 1, row, left, 4, grid, requests(8), ierr)
  do step = 1, steps
    call MPI_Startall(8, requests, ierr)
    call MPI_Waitall(8, requests, statuses, ierr)
    call relax(u, next, f)
    if (mod(step, 50) == 0) then
      residual = maxval(abs(next - u(1:m, 1:m)))
      call MPI_Allreduce(MPI_IN_PLACE, residual, 1, MPI_DOUBLE_PRECISION, largest, grid, ierr)
      if (me == 0) print '(a, i4, a, z16.16)', 'step ', step, ' residual ', residual
    end if
    u(1:m, 1:m) = next
  end do
  do i = 1, 8
    call MPI_Request_free(requests(i), ierr)
  end do

  sums = [sum(next), sum(next * f)]
  call MPI_Reduce(sums, all, 2, MPI_DOUBLE_PRECISION, MPI_SUM, 0, grid, ierr)
  if (me == 0) print '(a, 2z17.16)', 'sums ', all
  call MPI_Op_free(largest, ierr)
  call MPI_Type_free(row, ierr)
  call MPI_Comm_free(grid, ierr)
  if (me == 0) then
    if (residual > 0) print '(a)', 'poisson: ok'
  end if
  call MPI_Finalize(ierr)
contains
  ! Not inlined: the halo changes where the compiler does not see it.
  subroutine relax(u, next, f)
    double precision, intent(in) :: u(0:m + 1, 0:m + 1), f(m, m)
    double precision, intent(out) :: next(m, m)
    next = 0.25d0 * (u(0:m - 1, 1:m) + u(2:m + 1, 1:m) + u(1:m, 0:m - 1) + u(1:m, 2:m + 1) - f)
  end subroutine
end program
