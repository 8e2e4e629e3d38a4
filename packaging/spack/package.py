# SPDX-License-Identifier: Apache-2.0
#
# A recipe for Spack, in a repository of one's own (`spack repo create`, then packages/libckpt/package.py).  Spack's
# own tool has not looked at it where this was written: internal/house checks that it is Python, that what it calls
# is what Spack gives a package, and that it fits the Makefile.
from spack.package import *


class Libckpt(MakefilePackage):
    """libckpt saves a running MPI job and continues it later: on the same nodes or on
    others, after a crash, at the end of a time slot, or under another MPI."""

    homepage = "https://github.com/libckpt/libckpt"
    git = "https://github.com/libckpt/libckpt.git"

    license("Apache-2.0", checked_by="libckpt")

    version("main", branch="main")
    version("0.1.0", tag="v0.1.0")

    variant("fortran", default=True, description="the modules of gfortran")

    depends_on("c", type="build")
    depends_on("fortran", type="build", when="+fortran")
    depends_on("go@1.26:", type="build")
    depends_on("gmake", type="build")
    # The MPI below.  Others are added later, by `ckptctl back add MPICC`.
    depends_on("mpi@3.1:")

    requires("target=x86_64:", msg="libckpt runs on x86-64 only")
    requires("platform=linux", msg="libckpt runs on Linux only")
    conflicts("%clang", msg="the build names gcc")

    def setup_build_environment(self, env):
        # Nothing is installed or fetched beside modules of Go, which have a place of their own.
        env.set("LIBCKPT_SETUP", "look")
        env.set("GOMODCACHE", join_path(self.stage.path, "gomod"))
        env.set("GOFLAGS", "-modcacherw")

    @property
    def build_targets(self):
        return ["all", "BACKS={0}".format(self.spec["mpi"].mpicc)]

    def install(self, spec, prefix):
        make("install", *self.build_targets[1:], "PREFIX={0}".format(prefix))

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def starts(self):
        Executable(self.prefix.bin.ckptctl)("back", "list")
        with working_dir(self.stage.path):
            Executable(self.prefix.bin.ckptrun)("--", "/bin/true")
