! SPDX-License-Identifier: Apache-2.0
!
! Coarrays, as often as the argument says (once): a wave on a ring of images, whose ends are put into the neighbours'
! memory; sections that are got from others; events to and fro; counters that all images add to; collective subroutines; a
! coarray that comes and goes. Image 1 prints what came of it: whole numbers, so that the order of a sum is no matter.
program coarrays
  use, intrinsic :: iso_fortran_env, only: event_type, atomic_int_kind, int64
  implicit none
  integer, parameter :: cells = 500
  integer(int64), parameter :: prime = 2147483647_int64
  integer(int64) :: wave(0:cells + 1)[*], now(cells), check[*]
  integer(int64), allocatable :: brief(:)[:]
  integer(atomic_int_kind) :: counter[*], value
  type(event_type) :: there[*], back[*]
  character(16) :: text
  integer :: me, n, left, right, rounds, i, j

  me = this_image()
  n = num_images()
  left = merge(n, me - 1, me == 1)
  right = merge(1, me + 1, me == n)
  rounds = 1
  if (command_argument_count() > 0) then
    call get_command_argument(1, text)
    read (text, *) rounds
  end if
  wave = [(mod(int(me, int64) * 7919 + i * 104729_int64, prime), i = 0, cells + 1)]
  check = 0
  counter = 0
  sync all

  do i = 1, rounds
    ! One-sided: each end into the neighbour's halo.
    wave(cells + 1)[left] = wave(1)
    wave(0)[right] = wave(cells)
    sync all
    now = mod(wave(0:cells - 1) + 3 * wave(1:cells) + 5 * wave(2:cells + 1) + i, prime)
    sync all
    wave(1:cells) = now

    ! A stride of another image's memory.
    sync all
    check = mod(check * 31 + sum(wave(1:cells:7)[right]) + wave(me)[left], prime)
    sync all

    ! Image 1 serves the others, who wait for its answer.
    if (me == 1) then
      if (n > 1) then
        event wait (there, until_count=n - 1)
        do j = 2, n
          event post (back[j])
        end do
      end if
    else
      event post (there[1])
      event wait (back)
    end if

    call atomic_add(counter[mod(i, n) + 1], me)

    ! A coarray for this round.
    allocate (brief(mod(i, 40) + n)[*])
    brief(me)[right] = int(me, int64) * i
    sync all
    check = mod(check * 31 + brief(left), prime)
    deallocate (brief)

    if (mod(i, 10) == 0) then
      now = mod(now, 65536_int64)
      call co_sum(now)
      check = mod(check * 31 + now(mod(i, cells) + 1), prime)
      call co_broadcast(now, source_image=mod(i / 10, n) + 1)
      check = mod(check * 31 + now(1), prime)
    end if
  end do

  sync all
  call atomic_ref(value, counter)
  check = mod(check * 31 + value, prime)
  call co_max(check)
  if (me == 1) then
    print '(a, i0, a, i0, a, i0)', 'coarrays: ', n, ' images, largest check ', check, ', first cell ', wave(1)
    print '(a)', 'coarrays: ok'
  end if
end program coarrays
