! SPDX-License-Identifier: Apache-2.0
!
! rods.f90: heat in a rod on each rank, which names its state by the module mpix_checkpoint.
!
!   rods STEPS EVERY
program rods
  use, intrinsic :: iso_c_binding, only: c_int, c_size_t, c_double
  use mpi
  use mpix_checkpoint
  implicit none
  integer, parameter :: cells = 1000
  real(c_double), save :: u(0:cells + 1, 4) = 0
  integer, save :: step = 0
  real(c_double) :: v(cells), total
  integer :: steps, every, rank, ierr, rod, i
  integer(c_int) :: state
  character(len=200) :: word

  call get_command_argument(1, word)
  read (word, *) steps
  call get_command_argument(2, word)
  read (word, *) every
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  u(0, :) = 1 + rank
  call must(mpix_checkpoint_protect(0, u, int(storage_size(u) / 8, c_size_t) * size(u)))
  call must(mpix_checkpoint_protect(1, step, int(storage_size(step) / 8, c_size_t)))
  call must(mpix_checkpoint_recover(state))
  if (rank == 0 .and. state == MPIX_CR_STATE_RESTART) print '(a,i0)', 'restart at ', step
  do while (step < steps)
    do rod = 1, 4
      v = u(1:cells, rod) + 0.25d0 * (u(0:cells - 1, rod) - 2 * u(1:cells, rod) + u(2:cells + 1, rod))
      u(1:cells, rod) = v
    end do
    step = step + 1
    if (every > 0) then
      if (mod(step, every) == 0) then
        call must(mpix_checkpoint_save(state))
        if (state /= MPIX_CR_STATE_CHECKPOINT) error stop 'not saved'
        if (rank == 0) print '(a,i0)', 'saved ', step
        flush (6)
      end if
    end if
  end do
  total = 0
  do i = 1, cells
    total = total + sum(u(i, :))
  end do
  call MPI_Allreduce(MPI_IN_PLACE, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  if (rank == 0) print '(a,z16.16)', 'end ', transfer(total, 0_8)
  call MPI_Finalize(ierr)

contains
  subroutine must(r)
    integer(c_int), intent(in) :: r
    character(len=1000) :: why
    integer(c_int) :: ignored
    if (r == 0) return
    ignored = mpix_checkpoint_reason(why, int(len(why), c_size_t))
    print *, r, why(:index(why, char(0)) - 1)
    error stop 'a call failed'
  end subroutine
end program rods
