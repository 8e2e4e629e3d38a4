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

# The Fortran companion of Open MPI: some functions of ours, and the real library, needed by its path.
REAL_MPIFH := $(realpath $(shell $(MPICC_OPENMPI) --showme:libdirs)/libmpi_mpifh.so)
$(OBJ)/capi/front/real_mpifh.so:
	@mkdir -p $(@D)
	$(CC) -shared -nostdlib -Wl,-soname,$(REAL_MPIFH) -o $@ -x c /dev/null
$(OBJ)/capi/front/abi/openmpi_mpifh.o: CFLAGS += -Icapi -DFRONT_ABI=2
$(PKG)/front/libmpi_mpifh.so.40: $(OBJ)/capi/front/abi/openmpi_mpifh.o $(PKG)/front/libmpi.so.40 $(OBJ)/capi/front/real_mpifh.so
	$(CC) $(CFLAGS) $(FRONT_LD) -Wl,--no-as-needed -Wl,-soname,libmpi_mpifh.so.40 -o $@ $^
PARTS += $(PKG)/front/libmpi_mpifh.so.40

# The C++ companion, in the same way.
REAL_CXX := $(realpath $(shell $(MPICC_OPENMPI) --showme:libdirs)/libmpi_cxx.so)
$(OBJ)/capi/front/real_cxx.so:
	@mkdir -p $(@D)
	$(CC) -shared -nostdlib -Wl,-soname,$(REAL_CXX) -o $@ -x c /dev/null
$(OBJ)/capi/front/abi/openmpi_cxx.o: CFLAGS += -Icapi -DFRONT_ABI=2
$(PKG)/front/libmpi_cxx.so.40: $(OBJ)/capi/front/abi/openmpi_cxx.o $(PKG)/front/libmpi.so.40 $(OBJ)/capi/front/real_cxx.so
	$(CC) $(CFLAGS) $(FRONT_LD) -Wl,--no-as-needed -Wl,-soname,libmpi_cxx.so.40 -o $@ $^
PARTS += $(PKG)/front/libmpi_cxx.so.40

