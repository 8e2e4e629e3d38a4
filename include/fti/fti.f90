! SPDX-License-Identifier: Apache-2.0
!
! fti.f90: the functions of FTI for Fortran that libckpt_fti.so has, see fti.h.  Compile this file with the program's
! compiler, or take the module that is beside it when gfortran is; link as fti.h says.  The module has interfaces only.
!
! The compiler passes arguments of any type and rank, and character strings, to C by descriptors, as Fortran 2018 has it
! (gfortran from 12 on).  What is protected is any contiguous variable, TARGET or POINTER, whose memory stays where it is.
module FTI
  use, intrinsic :: iso_c_binding, only: c_char, c_int, c_int64_t, c_size_t, c_bool, c_ptr
  implicit none
  private

  integer, parameter, public :: FTI_SCES = 0, FTI_DONE = 1, FTI_NSCS = -1, FTI_NREC = -2

  ! Types, for FTI_Protect of an address and for fields.
  integer, parameter, public :: FTI_CHARACTER1 = 0, FTI_CHARACTER4 = 15
  integer, parameter, public :: FTI_INTEGER1 = 0, FTI_INTEGER2 = 1, FTI_INTEGER4 = 2, FTI_INTEGER8 = 3, FTI_INTEGER16 = 14
  integer, parameter, public :: FTI_LOGICAL1 = 0, FTI_LOGICAL2 = 1, FTI_LOGICAL4 = 2, FTI_LOGICAL8 = 3, FTI_LOGICAL16 = 14
  integer, parameter, public :: FTI_REAL4 = 8, FTI_REAL8 = 9, FTI_REAL10 = 10, FTI_REAL16 = 14
  integer, parameter, public :: FTI_COMPLEX4 = 11, FTI_COMPLEX8 = 12, FTI_COMPLEX10 = 13, FTI_COMPLEX16 = 13

  public :: FTI_Init, FTI_Status, FTI_Finalize, FTI_InitType, FTI_InitCompositeType, FTI_AddScalarField, FTI_AddVectorField, &
            FTI_Protect, FTI_Checkpoint, FTI_Recover, FTI_Snapshot, FTI_InitICP, FTI_AddVarICP, FTI_FinalizeICP, &
            FTI_GetStoredSize, FTI_Realloc, FTI_RecoverVarInit, FTI_RecoverVar, FTI_RecoverVarFinalize, &
            FTI_setIDFromString, FTI_getIDFromString

  interface
    ! global_comm becomes FTI_COMM_WORLD.
    subroutine FTI_Init(config_file, global_comm, err) bind(c, name="ckpt_fti_init")
      import :: c_int, c_char
      character(len=*, kind=c_char), intent(in) :: config_file
      integer(c_int), intent(inout) :: global_comm
      integer(c_int), intent(out) :: err
    end subroutine

    subroutine FTI_Status(status) bind(c, name="ckpt_fti_status")
      import :: c_int, c_char
      integer(c_int), intent(out) :: status
    end subroutine

    subroutine FTI_Finalize(err) bind(c, name="ckpt_fti_finalize")
      import :: c_int, c_char
      integer(c_int), intent(out) :: err
    end subroutine

    function FTI_InitType(bytes) bind(c, name="ckpt_fti_inittype") result(type)
      import :: c_int, c_size_t, c_char
      integer(c_size_t), intent(in) :: bytes
      integer(c_int) :: type
    end function

    function FTI_InitCompositeType(name, bytes) bind(c, name="ckpt_fti_initcomposite") result(type)
      import :: c_int, c_size_t, c_char
      character(len=*, kind=c_char), intent(in) :: name
      integer(c_size_t), intent(in) :: bytes
      integer(c_int) :: type
    end function

    function FTI_AddScalarField(id, name, type, offset) bind(c, name="ckpt_fti_addscalar") result(err)
      import :: c_int, c_size_t, c_char
      integer(c_int), intent(in) :: id, type
      character(len=*, kind=c_char), intent(in) :: name
      integer(c_size_t), intent(in) :: offset
      integer(c_int) :: err
    end function

    function FTI_AddVectorField(id, name, type, offset, dims, sizes) bind(c, name="ckpt_fti_addvector") result(err)
      import :: c_int, c_size_t, c_char
      integer(c_int), intent(in) :: id, type, dims
      character(len=*, kind=c_char), intent(in) :: name
      integer(c_size_t), intent(in) :: offset
      integer(c_int), intent(in) :: sizes(*)
      integer(c_int) :: err
    end function

    subroutine FTI_Checkpoint(id, level, err) bind(c, name="ckpt_fti_checkpoint")
      import :: c_int, c_char
      integer(c_int), intent(in) :: id, level
      integer(c_int), intent(out) :: err
    end subroutine

    subroutine FTI_Recover(err) bind(c, name="ckpt_fti_recover")
      import :: c_int, c_char
      integer(c_int), intent(out) :: err
    end subroutine

    subroutine FTI_Snapshot(err) bind(c, name="ckpt_fti_snapshot")
      import :: c_int, c_char
      integer(c_int), intent(out) :: err
    end subroutine

    subroutine FTI_AddVarICP(id, err) bind(c, name="ckpt_fti_addvaricp")
      import :: c_int, c_char
      integer(c_int), intent(in) :: id
      integer(c_int), intent(out) :: err
    end subroutine

    subroutine FTI_FinalizeICP(err) bind(c, name="ckpt_fti_finalizeicp")
      import :: c_int, c_char
      integer(c_int), intent(out) :: err
    end subroutine

    ! In bytes.
    subroutine FTI_GetStoredSize(id, bytes) bind(c, name="ckpt_fti_getstoredsize")
      import :: c_int, c_int64_t
      integer(c_int), intent(in) :: id
      integer(c_int64_t), intent(out) :: bytes
    end subroutine

    ! address is of C's malloc, or c_null_ptr.
    subroutine FTI_Realloc(id, address, err) bind(c, name="ckpt_fti_realloc")
      import :: c_int, c_ptr
      integer(c_int), intent(in) :: id
      type(c_ptr), intent(inout) :: address
      integer(c_int), intent(out) :: err
    end subroutine

    subroutine FTI_RecoverVarInit(err) bind(c, name="ckpt_fti_recovervarinit")
      import :: c_int, c_char
      integer(c_int), intent(out) :: err
    end subroutine

    subroutine FTI_RecoverVar(id, err) bind(c, name="ckpt_fti_recovervar")
      import :: c_int, c_char
      integer(c_int), intent(in) :: id
      integer(c_int), intent(out) :: err
    end subroutine

    subroutine FTI_RecoverVarFinalize(err) bind(c, name="ckpt_fti_recovervarfinalize")
      import :: c_int, c_char
      integer(c_int), intent(out) :: err
    end subroutine

    subroutine FTI_setIDFromString(name, id) bind(c, name="ckpt_fti_setid")
      import :: c_int, c_char
      character(len=*, kind=c_char), intent(in) :: name
      integer(c_int), intent(out) :: id
    end subroutine

    subroutine FTI_getIDFromString(name, id) bind(c, name="ckpt_fti_getid")
      import :: c_int, c_char
      character(len=*, kind=c_char), intent(in) :: name
      integer(c_int), intent(out) :: id
    end subroutine
  end interface

  interface FTI_InitICP
    ! The kind of a LOGICAL is the compiler's.
    subroutine fti_init_icp(id, level, activate, err) bind(c, name="ckpt_fti_initicp")
      import :: c_int, c_char
      integer(c_int), intent(in) :: id, level
      type(*), dimension(..), intent(in) :: activate
      integer(c_int), intent(out) :: err
    end subroutine
  end interface

  interface FTI_Protect
    subroutine fti_protect_variable(id, variable, err) bind(c, name="ckpt_fti_protect")
      import :: c_int, c_char
      integer(c_int), intent(in) :: id
      type(*), dimension(..), target :: variable
      integer(c_int), intent(out) :: err
    end subroutine

    subroutine fti_protect_address(id, address, count, type, err) bind(c, name="ckpt_fti_protect_address")
      import :: c_int, c_ptr
      integer(c_int), intent(in) :: id
      type(c_ptr), value :: address
      integer(c_int), intent(in) :: count, type
      integer(c_int), intent(out) :: err
    end subroutine
  end interface
end module FTI
