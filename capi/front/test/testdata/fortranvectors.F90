! SPDX-License-Identifier: Apache-2.0
!
! Collective calls with something for each member, those that do not block among them, and sections of arrays, through mpi_f08 and
! the module mpi. Checked, saved with requests under way when the argument is "save", and checked again.

program fortranvectors
#ifdef F08
  use mpi_f08
#else
  use mpi
#endif
  implicit none
  interface
    integer(c_int) function checkpoint(state) bind(C, name="MPIX_Checkpoint")
      use, intrinsic :: iso_c_binding
      integer(c_int) :: state
    end function
  end interface
#ifdef F08
#define REQUEST type(MPI_Request)
#define INFO type(MPI_Info)
#else
#define REQUEST integer
#define INFO integer
#endif
  integer :: me, n, i, state, err
  integer, allocatable, asynchronous :: mine(:), all(:), to(:), from(:), counts(:), places(:)
  integer, allocatable, asynchronous :: wide(:, :), got(:)
  REQUEST :: requests(3)
  character(len=16) :: argument
  INFO :: hints
  character(len=24) :: text
  logical :: found
  integer :: length

  call MPI_Init(err)
  call MPI_Comm_rank(MPI_COMM_WORLD, me, err)
  call MPI_Comm_size(MPI_COMM_WORLD, n, err)
  allocate(mine(me + 1), all(n * (n + 1) / 2), to(n), from(n), counts(n), places(n), wide(2, n), got(n))
  counts = [(i, i = 1, n)]
  places = [(i * (i - 1) / 2, i = 1, n)]
  call check('first')
  call get_command_argument(1, argument)
  state = -1
  if (argument == 'save') then
    call begin()
    if (checkpoint(state) /= 0) call fail('MPIX_Checkpoint')
    call finish('under way')
    call check('saved')
  end if
  call MPI_Finalize(err)
  if (me /= 0) stop
  if (state == 2) then
    print '(a)', 'fortranvectors: ok, restarted'
  else if (state == 1) then
    print '(a)', 'fortranvectors: ok, saved'
  else
    print '(a)', 'fortranvectors: ok'
  end if

contains

  subroutine fail(what)
    character(len=*), intent(in) :: what
    print '(a,i0,2a)', 'fortranvectors: rank ', me, ': ', what
    call MPI_Abort(MPI_COMM_WORLD, 1, err)
  end subroutine

  ! Three calls that do not block.
  subroutine begin()
    mine = me
    all = -1
    to = [(100 * me + i, i = 0, n - 1)]
    from = -1
    got = -1
    call MPI_Iallgatherv(mine, me + 1, MPI_INTEGER, all, counts, places, MPI_INTEGER, MPI_COMM_WORLD, requests(1), err)
    call MPI_Ialltoallv(to, [(1, i = 1, n)], [(i, i = 0, n - 1)], MPI_INTEGER, from, [(1, i = 1, n)], [(i, i = 0, n - 1)], &
                        MPI_INTEGER, MPI_COMM_WORLD, requests(2), err)
    call MPI_Igather(me, 1, MPI_INTEGER, got, 1, MPI_INTEGER, n - 1, MPI_COMM_WORLD, requests(3), err)
  end subroutine

  subroutine finish(when)
    character(len=*), intent(in) :: when
    call MPI_Waitall(3, requests, MPI_STATUSES_IGNORE, err)
    do i = 1, n
      if (any(all(places(i) + 1:places(i) + i) /= i - 1)) call fail('MPI_Iallgatherv, ' // when)
    end do
    if (any(from /= [(100 * i + me, i = 0, n - 1)])) call fail('MPI_Ialltoallv, ' // when)
    if (me == n - 1 .and. any(got /= [(i, i = 0, n - 1)])) call fail('MPI_Igather, ' // when)
    if (any(requests /= MPI_REQUEST_NULL)) call fail('MPI_Waitall, ' // when)
  end subroutine

  subroutine check(when)
    character(len=*), intent(in) :: when
    integer :: whole(n * (n + 1) / 2), kept(me + 1), one, square(n, n)
    call begin()
    call finish(when)

    ! With a count for each member.
    mine = me
    whole = -1
    call MPI_Gatherv(mine, me + 1, MPI_INTEGER, whole, counts, places, MPI_INTEGER, 0, MPI_COMM_WORLD, err)
    if (me == 0) then
      do i = 1, n
        if (any(whole(places(i) + 1:places(i) + i) /= i - 1)) call fail('MPI_Gatherv, ' // when)
      end do
      whole = 10 * whole
    end if
    call MPI_Scatterv(whole, counts, places, MPI_INTEGER, kept, me + 1, MPI_INTEGER, 0, MPI_COMM_WORLD, err)
    if (any(kept /= 10 * me)) call fail('MPI_Scatterv, ' // when)
    call MPI_Allgatherv(mine, me + 1, MPI_INTEGER, whole, counts, places, MPI_INTEGER, MPI_COMM_WORLD, err)
    if (any(whole(places(n) + 1:) /= n - 1)) call fail('MPI_Allgatherv, ' // when)
    call MPI_Reduce_scatter([(i, i = 1, n)], one, [(1, i = 1, n)], MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, err)
    if (one /= n * (me + 1)) call fail('MPI_Reduce_scatter, ' // when)

    ! In place, and one for each.
    got = -1
    got(me + 1) = me
    call MPI_Allgather(MPI_IN_PLACE, 1, MPI_INTEGER, got, 1, MPI_INTEGER, MPI_COMM_WORLD, err)
    if (any(got /= [(i, i = 0, n - 1)])) call fail('MPI_Allgather, ' // when)
    call MPI_Scatter(got, 1, MPI_INTEGER, one, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, err)
    if (one /= me) call fail('MPI_Scatter, ' // when)

    call MPI_Alltoall([(10 * me + i, i = 0, n - 1)], 1, MPI_INTEGER, got, 1, MPI_INTEGER, MPI_COMM_WORLD, err)
    if (any(got /= [(10 * i + me, i = 0, n - 1)])) call fail('MPI_Alltoall, ' // when)

    ! Every second element, where the binding takes such.
    if (MPI_SUBARRAYS_SUPPORTED) then
      wide(1, :) = [(100 * me + i, i = 0, n - 1)]
      wide(2, :) = -1
      call MPI_Bcast(wide(1, :), n, MPI_INTEGER, n - 1, MPI_COMM_WORLD, err)
      if (any(wide(1, :) /= [(100 * (n - 1) + i, i = 0, n - 1)]) .or. any(wide(2, :) /= -1)) call fail('MPI_Bcast, ' // when)
      wide(2, :) = [(10 * me + i, i = 0, n - 1)]
      call MPI_Gather(wide(2, :), n, MPI_INTEGER, square, n, MPI_INTEGER, 0, MPI_COMM_WORLD, err)
      if (me == 0 .and. any(square(:, n) /= [(10 * (n - 1) + i, i = 0, n - 1)])) call fail('MPI_Gather, ' // when)
    end if

    ! Infos: strings have blanks at their ends.
    call MPI_Info_create(hints, err)
    call MPI_Info_set(hints, 'colour ', 'green and blue  ', err)
    text = 'unchanged'
    call MPI_Info_get(hints, 'colour', len(text), text, found, err)
    if (.not. found .or. text /= 'green and blue') call fail('MPI_Info_get gives ' // text // when)
    call MPI_Info_get_valuelen(hints, 'colour', length, found, err)
    if (.not. found .or. length /= len('green and blue')) call fail('MPI_Info_get_valuelen, ' // when)
    call MPI_Info_get_nthkey(hints, 0, text, err)
    if (text /= 'colour') call fail('MPI_Info_get_nthkey gives ' // text // when)
    call MPI_Info_get(hints, 'no such key', len(text), text, found, err)
    if (found) call fail('MPI_Info_get finds what is not there, ' // when)
    call MPI_Info_free(hints, err)
  end subroutine
end program
