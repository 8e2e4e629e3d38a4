# SPDX-License-Identifier: Apache-2.0
#
# The backs: one library per real MPI, compiled with that MPI's compiler wrapper.

BACK_SRCS := $(wildcard capi/back/*.c capi/back/*/*.c)

# A program may call what newer versions of MPI deprecate, so a back does, too.
BACK_FLAGS := -Wno-deprecated-declarations

# $(call library,NAME,COMPILER,OBJECTS,FOLDER,FLAGS).  The two names are what a back says of itself (about.c).
define library
$(OBJ)/$(3)/%.o: %.c
	@mkdir -p $$(@D)
	$(2) $(C_FLAGS) $(BACK_FLAGS) -Icapi -DBACK_COMPILER='"$(if $(filter abi,$(1)),,$(2))"' -DBACK_LIBCKPT='"$(VERSION)"' $(5) $(CFLAGS) -fPIC -fvisibility=hidden -c -o $$@ $$<
$(4)/libckptback-$(1).so: $(patsubst %.c,$(OBJ)/$(3)/%.o,$(BACK_SRCS)) | $(PKG)/libckpt-core.so
	@mkdir -p $$(@D)
	$(2) $(CFLAGS) -shared -o $$@ $$^ -L$(PKG) -l:libckpt-core.so $$(LIBS) -Wl,-rpath,'$$$$ORIGIN/..'
endef

# $(call back,NAME,COMPILER): the back, and another one for the tree for tests, which checks what is true at
# all times.
CHECKED := $(OBJ)/checked
back = $(eval $(call library,$(1),$(2),back-$(1),$(PKG)/back)) \
       $(eval PARTS += $(PKG)/back/libckptback-$(1).so) \
       $(eval $(call library,$(1),$(2),checked-$(1),$(CHECKED),-DBACK_CHECKS)) \
       $(eval faults: $(CHECKED)/libckptback-$(1).so)

$(foreach mpi,$(MPIS),$(call back,$(mpi),$(MPICC_$(mpi))))

# The back for any MPI that has the standard ABI needs none to be compiled: the header is ours, and so is the library
# that is linked with, whose name is that of the real one.
$(OBJ)/standard/libmpi_abi.so: $(PKG)/front/libmpi_abi.so.1
	@mkdir -p $(@D)
	ln -sfn $(abspath $<) $@
STANDARD_CC := $(CC) -Icapi/std/gen -L$(OBJ)/standard
$(PKG)/back/libckptback-abi.so $(CHECKED)/libckptback-abi.so: LIBS := -lmpi_abi
$(PKG)/back/libckptback-abi.so $(CHECKED)/libckptback-abi.so: | $(OBJ)/standard/libmpi_abi.so
$(call back,abi,$(STANDARD_CC))
