! SPDX-License-Identifier: Apache-2.0
!
! bars.f90: heat in bars on each rank, saved by the module FTI.
!
!   bars CONFIG STEPS EVERY
program bars
  use, intrinsic :: iso_c_binding, only: c_double, c_float, c_int64_t, c_size_t, c_loc
  use mpi
  use FTI
  implicit none
  integer, parameter :: cells = 1000
  type pair
    real(c_double) :: a
    integer :: b
  end type
  real(c_double), pointer :: u(:, :)
  complex(c_float), target :: z = (0, 0)
  character(len=5), target :: word = 'start'
  logical, target :: flags(3) = .false.
  integer, target :: step = 0
  type(pair), target :: two = pair(0, 0)
  integer(c_int64_t) :: bytes
  integer :: steps, every, rank, comm, err, bar, i, kind, id
  real(c_double) :: v(cells), total
  character(len=200) :: config, text

  call get_command_argument(1, config)
  call get_command_argument(2, text)
  read (text, *) steps
  call get_command_argument(3, text)
  read (text, *) every
  call MPI_Init(err)
  comm = MPI_COMM_WORLD
  call FTI_Init(config, comm, err) ! with blanks at its end
  if (err /= FTI_SCES) error stop 'FTI_Init'
  call MPI_Comm_rank(comm, rank, err)
  allocate (u(0:cells + 1, 4))
  u = 0
  u(0, :) = 1 + rank
  kind = FTI_InitCompositeType('pair', int(storage_size(two) / 8, c_size_t))
  call must(FTI_AddScalarField(kind, 'a', FTI_REAL8, 0_c_size_t))
  call must(FTI_AddScalarField(kind, 'b', FTI_INTEGER4, 8_c_size_t))
  if (FTI_AddScalarField(kind, 'c', FTI_REAL8, 99_c_size_t) /= FTI_NSCS) error stop 'a field outside of its type'
  call FTI_Protect(0, u, err)
  call must(err)
  call FTI_Protect(1, step, err)
  call must(err)
  call FTI_Protect(2, z, err)
  call must(err)
  call FTI_Protect(3, word, err)
  call must(err)
  call FTI_Protect(4, flags, err)
  call must(err)
  call FTI_Protect(5, c_loc(two), 1, kind, err)
  call must(err)
  call FTI_Protect(6, u(1:cells:2, 1), err)
  if (err == FTI_SCES) error stop 'what is not contiguous'
  call FTI_setIDFromString('name', id)
  call FTI_Status(err)
  if (err /= 0) then
    call FTI_GetStoredSize(0, bytes)
    if (bytes /= 8 * size(u)) error stop 'the size that is stored'
    call FTI_getIDFromString('name  ', i)
    if (i /= id) error stop 'the number of a name'
    call FTI_Recover(err)
    call must(err)
    if (rank == 0) print '(a,i0)', 'restart at ', step
    if (word /= 'saved' .or. .not. all(flags) .or. two%b /= step .or. nint(real(z)) /= step) error stop 'what was recovered'
  end if
  do while (step < steps)
    do bar = 1, 4
      v = u(1:cells, bar) + 0.25d0 * (u(0:cells - 1, bar) - 2 * u(1:cells, bar) + u(2:cells + 1, bar))
      u(1:cells, bar) = v
    end do
    step = step + 1
    two = pair(step, step)
    z = cmplx(step, -step)
    word = 'saved'
    flags = .true.
    if (every > 0) then
      if (mod(step, every) == 0) then
        if (mod(step / every, 2) == 0) then
          call FTI_Checkpoint(step / every, 1 + mod(step, 4), err)
          if (err /= FTI_DONE) error stop 'not saved'
        else
          call FTI_InitICP(step / every, 4, .true., err)
          do i = 0, 5
            call FTI_AddVarICP(i, err)
            call must(err)
          end do
          call FTI_FinalizeICP(err)
          call must(err)
        end if
        if (rank == 0) print '(a,i0)', 'saved ', step
        flush (6)
      end if
    end if
  end do
  total = two%a
  do i = 1, cells
    total = total + sum(u(i, :))
  end do
  call MPI_Allreduce(MPI_IN_PLACE, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, comm, err)
  if (rank == 0) print '(a,z16.16)', 'end ', transfer(total, 0_8)
  call FTI_Finalize(err)
  call must(err)
  call MPI_Finalize(err)

contains
  subroutine must(r)
    integer, intent(in) :: r
    if (r /= FTI_SCES) error stop 'a call failed'
  end subroutine
end program bars
