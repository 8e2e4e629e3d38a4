# SPDX-License-Identifier: Apache-2.0
#
# The fronts: one library per application ABI, under that library's SONAME, in the directory where
# ckptrun looks first.

# What is in abi/ belongs to one ABI, or to a companion of it.
FRONT_SRCS := $(filter-out capi/front/abi/%,$(wildcard capi/front/*.c capi/front/*/*.c))
FRONT_LD   := -shared -Wl,-z,defs -Wl,-z,now

# $(call front,ABI,NUMBER,SONAME): objects in their own directory, since each ABI compiles the same
# sources.
define front
FRONT_$(1)_OBJS := $(patsubst %.c,$(OBJ)/front-$(1)/%.o,$(FRONT_SRCS) $(wildcard capi/front/abi/$(1)_*abi.c))
$(OBJ)/front-$(1)/%.o: %.c
	@mkdir -p $$(@D)
	$(CC) $(C_FLAGS) -Icapi -DFRONT_ABI=$(2) $(CFLAGS) -fPIC -fvisibility=hidden -c -o $$@ $$<
$(PKG)/front/$(3): $$(FRONT_$(1)_OBJS)
	@mkdir -p $$(@D)
	$(CC) $(CFLAGS) $(FRONT_LD) -Wl,-soname,$(3) -o $$@ $$^
PARTS += $(PKG)/front/$(3)
endef

$(eval $(call front,mpich,1,libmpich.so.12))
$(eval $(call front,openmpi,2,libmpi.so.40))
$(eval $(call front,std,3,libmpi_abi.so.1))

# Programs of MPICH as its authors install it, and of Intel MPI, MVAPICH and others of its ABI, name it so.
$(PKG)/front/libmpi.so.12: $(PKG)/front/libmpich.so.12
	ln -sfn libmpich.so.12 $@
PARTS += $(PKG)/front/libmpi.so.12

# The Fortran and C++ companions of Open MPI: some functions of ours, and the real library, needed by its path.  Only
# where there is such a library: Open MPI 5 has no C++, and without Open MPI nothing needs them.
# $(call companion,LIBRARY,SOURCES)
define companion
REAL_$(1) := $$(realpath $$(addsuffix /lib$(1).so,$$(OPENMPI_DIRS)))
ifneq ($$(REAL_$(1)),)
$(OBJ)/capi/front/real_$(1).so: $(SETUP)
	@mkdir -p $$(@D)
	$(CC) -shared -nostdlib -Wl,-soname,$$(REAL_$(1)) -o $$@ -x c /dev/null
$(2:%=$(OBJ)/capi/front/abi/%.o): C_EXTRA := -Icapi -DFRONT_ABI=2
$(PKG)/front/lib$(1).so.40: $(2:%=$(OBJ)/capi/front/abi/%.o) $(PKG)/front/libmpi.so.40 $(OBJ)/capi/front/real_$(1).so $(3)
	$(CC) $(CFLAGS) $(FRONT_LD) -Wl,--no-as-needed -Wl,-soname,lib$(1).so.40 -o $$@ $$^
PARTS += $(PKG)/front/lib$(1).so.40
endif
endef
OPENMPI_CC := $(firstword $(foreach mpi,$(MPIS),$(if $(filter openmpi,$(MPI_IS_$(mpi))),$(MPICC_$(mpi)))))
OPENMPI_DIRS := $(if $(OPENMPI_CC),$(firstword $(shell $(OPENMPI_CC) --showme:libdirs)))
# Open MPI 5 has more functions that look into objects, and Open MPI 6 has them in the module mpi_f08, too.
openmpi_has = $(shell grep -qs $(2) $(realpath $(addsuffix /lib$(1).so,$(OPENMPI_DIRS))) && echo yes)
OPENMPI_5 := $(if $(OPENMPI_DIRS),$(call openmpi_has,mpi_mpifh,ompi_alltoallw_init_f))
OPENMPI_6 := $(if $(OPENMPI_DIRS),$(call openmpi_has,mpi_usempif08,ompi_gather_wrapper_f08))
$(eval $(call companion,mpi_mpifh,openmpi_mpifh $(if $(OPENMPI_5),openmpi_mpifh5)))
$(eval $(call companion,mpi_cxx,openmpi_cxx))
ifneq ($(OPENMPI_6),)
$(eval $(call companion,mpi_usempif08,openmpi_f08,$(PKG)/front/libmpi_mpifh.so.40))
endif

# The Fortran library of Open MPI 5 and 6 needs the library below MPI, for a few functions. The real one would bring
# PMIx and others into the upper half.
ifneq ($(OPENMPI_5),)
OPEN_PAL := $(shell readelf -d $(REAL_mpi_mpifh) | sed -n 's/.*NEEDED.*\[\(libopen-pal\.so\.[0-9]*\)\]/\1/p')
$(PKG)/front/$(OPEN_PAL): $(OBJ)/capi/front/abi/openmpi_pal.o
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(FRONT_LD) -Wl,-soname,$(OPEN_PAL) -o $@ $^
PARTS += $(PKG)/front/$(OPEN_PAL)
endif

# Open MPI 6 has what its libmpi.so.40 calls in another library, and its compiler wrapper names both. The real one would
# bring a network library into the upper half. What a program needs of it, the predefined objects, our libmpi.so.40 has.
# It has no code, and names the C library all the same: lintian before 2.143 takes a library without it for an error, and later
# ones an override of that.
$(PKG)/front/libopen_mpi.so.40: $(PKG)/front/libmpi.so.40
	$(CC) $(CFLAGS) $(FRONT_LD) -nostdlib -Wl,--no-as-needed -Wl,-soname,libopen_mpi.so.40 -o $@ -x c /dev/null -x none $^ -lc
PARTS += $(PKG)/front/libopen_mpi.so.40
