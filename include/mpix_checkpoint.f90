! SPDX-License-Identifier: Apache-2.0
!
! mpix_checkpoint.f90: mpix_checkpoint.h for Fortran.  Compile this file with the program's compiler, or take the module
! that is beside it when gfortran is; link with -lckpt.  docs/man/MPIX_Checkpoint.3 explains the functions.
!
! The functions are those of C and return 0 or MPIX_CR_ERR_*.  MPIX_Checkpoint itself is called mpix_checkpoint_save
! here, since no function can have the name of its module.  A buffer is any contiguous variable, TARGET or not module or
! SAVE data, whose memory stays where it is until it is unprotected; bytes is its length, as storage_size(x) / 8 * size(x).
module mpix_checkpoint
  use, intrinsic :: iso_c_binding, only: c_int, c_size_t, c_char, c_ptr, c_null_char
  implicit none
  private :: c_int, c_size_t, c_char, c_ptr, c_null_char

  integer, parameter :: MPIX_CR_STATE_ERROR = 0
  integer, parameter :: MPIX_CR_STATE_CHECKPOINT = 1
  integer, parameter :: MPIX_CR_STATE_RESTART = 2
  integer, parameter :: MPIX_CR_STATE_IGNORE = 3

  integer, parameter :: MPIX_CR_ERR_ARG = 12
  integer, parameter :: MPIX_CR_ERR_OTHER = 15
  integer, parameter :: MPIX_CR_ERR_NONE = 37

  interface
    function mpix_checkpoint_save(state) bind(c, name="MPIX_Checkpoint") result(ierror)
      import :: c_int
      integer(c_int), intent(out) :: state
      integer(c_int) :: ierror
    end function

    function mpix_checkpoint_protect(id, buffer, bytes) bind(c, name="MPIX_Checkpoint_protect") result(ierror)
      import :: c_int, c_size_t
      integer(c_int), value :: id
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: buffer
      !DIR$ IGNORE_TKR buffer
      type(*), dimension(*) :: buffer
      integer(c_size_t), value :: bytes
      integer(c_int) :: ierror
    end function

    function mpix_checkpoint_unprotect(id) bind(c, name="MPIX_Checkpoint_unprotect") result(ierror)
      import :: c_int
      integer(c_int), value :: id
      integer(c_int) :: ierror
    end function

    function mpix_checkpoint_recover(state) bind(c, name="MPIX_Checkpoint_recover") result(ierror)
      import :: c_int
      integer(c_int), intent(out), optional :: state ! absent: only looks
      integer(c_int) :: ierror
    end function

    function mpix_checkpoint_saved(id, bytes) bind(c, name="MPIX_Checkpoint_saved") result(ierror)
      import :: c_int, c_size_t
      integer(c_int), value :: id
      integer(c_size_t), intent(out) :: bytes
      integer(c_int) :: ierror
    end function

    function mpix_checkpoint_recover_one(id) bind(c, name="MPIX_Checkpoint_recover_one") result(ierror)
      import :: c_int
      integer(c_int), value :: id
      integer(c_int) :: ierror
    end function

    ! Dimensions are in the order of C: the last one runs fastest.  That of Fortran is turned round.
    function mpix_checkpoint_distribute(id, dims, whole, first, count, element) &
        bind(c, name="MPIX_Checkpoint_distribute") result(ierror)
      import :: c_int, c_size_t
      integer(c_int), value :: id, dims
      integer(c_size_t), intent(in) :: whole(*), first(*), count(*) ! first counts from 0
      integer(c_size_t), value :: element
      integer(c_int) :: ierror
    end function

    function mpix_checkpoint_level(level) bind(c, name="MPIX_Checkpoint_level") result(ierror)
      import :: c_int
      integer(c_int), value :: level
      integer(c_int) :: ierror
    end function

    function mpix_checkpoint_raise(level) bind(c, name="MPIX_Checkpoint_raise") result(ierror)
      import :: c_int
      integer(c_int), value :: level
      integer(c_int) :: ierror
    end function

    ! The text ends with a NUL.
    function mpix_checkpoint_reason(text, bytes) bind(c, name="MPIX_Checkpoint_reason") result(ierror)
      import :: c_int, c_size_t, c_char
      character(kind=c_char), intent(out) :: text(*)
      integer(c_size_t), value :: bytes
      integer(c_int) :: ierror
    end function
  end interface
end module mpix_checkpoint
