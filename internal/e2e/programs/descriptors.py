# SPDX-License-Identifier: Apache-2.0
#
# What a program sees of descriptors: those that it has closed, those that come in messages and from ioctl, those
# that it inherits and hands on.  Prints what is wrong, and "descriptors: good" when nothing is.
import errno
import fcntl
import os
import pty
import resource
import select
import socket
import subprocess
import sys

bad = 0


def want(ok, what):
    global bad
    if not ok:
        print("wrong:", what)
        bad += 1


def fails(error, what, f, *args):
    try:
        f(*args)
    except OSError as e:
        want(e.errno == error, "%s: %s" % (what, e))
    else:
        want(False, what + " succeeds")


# One that is closed.
closed = os.open("/", os.O_RDONLY)
os.close(closed)
fails(errno.EBADF, "select", select.select, [closed], [], [], 0)
fails(errno.EBADF, "select, writing", select.select, [], [200], [], 0)
fails(errno.EBADF, "fchdir", os.fchdir, closed)
fails(errno.EBADF, "fstatfs", os.fstatvfs, closed)
fails(errno.EBADF, "fstat", os.fstat, closed)
fails(errno.EBADF, "dup", os.dup, closed)

fails(errno.ENOENT, "/dev/fd of it", open, "/dev/fd/%d" % closed)
fails(errno.ENOENT, "/dev/fd of another's", open, "/dev/fd/9")

# From the shell, which names it in an argument.
with open(sys.argv[2]) as f:
    want(f.read() == "from the shell\n", "what the shell passed as " + sys.argv[2])

# From a message.
a, b = socket.socketpair()
r, w = os.pipe()
for flags in 0, socket.MSG_DONTWAIT:
    socket.send_fds(a, [b"x"], [r, w])
    _, fds, _, _ = socket.recv_fds(b, 10, 4, flags)
    want(len(fds) == 2 and max(fds) < 64, "numbers from a message: %s" % fds)
    os.write(fds[1], b"hello")
    want(select.select([fds[0]], [], [], 5)[0] == fds[:1] and os.read(fds[0], 5) == b"hello", "a pipe from a message")
    for fd in fds:
        os.close(fd)
# As many as the system says, and no more than the program asks for.
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
want(soft == os.sysconf("SC_OPEN_MAX") and os.dup2(r, soft - 1) == soft - 1, "the last of %d" % soft)
os.close(soft - 1)
fails(errno.EBADF, "one behind the last", os.dup2, r, soft)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
want(resource.getrlimit(resource.RLIMIT_NOFILE) == (64, hard), "a limit of 64")
held = []
try:
    while True:
        held.append(os.dup(r))
except OSError as e:
    want(e.errno == errno.EMFILE and max(held) in (62, 63), "the last of 64: %s, %s" % (e, held[-1]))
fails(errno.EINVAL, "F_DUPFD behind the last", fcntl.fcntl, r, fcntl.F_DUPFD, 64)
for fd in held:
    os.close(fd)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

# More of them than there are numbers left: some come, and the message says that others do not.
held = []
try:
    while True:
        held.append(os.dup(r))
except OSError as e:
    want(e.errno == errno.EMFILE, "as many as there may be: %s" % e)
os.close(held.pop())
socket.send_fds(a, [b"x"], [r, w])
_, fds, flags, _ = socket.recv_fds(b, 10, 4)
want(len(fds) == 1 and flags & socket.MSG_CTRUNC, "a message when numbers run out: %s, %x" % (fds, flags))
for fd in held + fds:
    os.close(fd)

# From ioctl.
master, slave = pty.openpty()
want(max(master, slave) < 64 and os.isatty(slave), "a pseudo-terminal: %s" % [master, slave])
os.write(slave, b"line\n")
want(os.read(master, 20) == b"line\r\n", "what goes through it")
os.close(slave)
os.close(master)

# Handed on: a child has what it is given, and nothing of ckptrun's.
null = os.open("/dev/null", os.O_RDWR)
child = "import os; print([n for n in range(3, 1024) if os.path.exists('/proc/self/fd/%d' % n)])"
said = subprocess.run([sys.executable, "-c", child], pass_fds=[null], capture_output=True, text=True).stdout
want(said == "[%d]\n" % null, "a child's descriptors: %s instead of [%d]" % (said.strip(), null))

# With the limit that it would have without ckptrun, or that this program set for it.
shows = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"


def limit_of_child(before=None):
    return subprocess.run([sys.executable, "-c", shows], preexec_fn=before, capture_output=True, text=True).stdout


want(limit_of_child() == sys.argv[1] + "\n", "a child's limit: %s instead of %s" % (limit_of_child(), sys.argv[1]))
lower = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (77, hard))
want(limit_of_child(lower) == "77\n", "the limit that a child was given: " + limit_of_child(lower))
want(resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard), "the own limit after that")

if not bad:
    print("descriptors: good")
sys.exit(bad != 0)
