# SPDX-License-Identifier: Apache-2.0
#
# The backs: one library per real MPI, compiled with that MPI's compiler wrapper.

BACK_SRCS := $(wildcard capi/back/*.c capi/back/*/*.c)

# $(call library,NAME,COMPILER,OBJECTS,FOLDER,FLAGS)
define library
$(OBJ)/$(3)/%.o: %.c
	@mkdir -p $$(@D)
	$(2) $(C_FLAGS) -Icapi $(5) $(CFLAGS) -fPIC -fvisibility=hidden -c -o $$@ $$<
$(4)/libckptback-$(1).so: $(patsubst %.c,$(OBJ)/$(3)/%.o,$(BACK_SRCS)) | $(PKG)/libckpt-core.so
	@mkdir -p $$(@D)
	$(2) $(CFLAGS) -shared -o $$@ $$^ -L$(PKG) -l:libckpt-core.so -Wl,-rpath,'$$$$ORIGIN/..'
endef

# $(call back,NAME,COMPILER): the back, and another one for the tree for tests, which checks what is true at
# all times.
CHECKED := $(OBJ)/checked
back = $(eval $(call library,$(1),$(2),back-$(1),$(PKG)/back)) \
       $(eval PARTS += $(PKG)/back/libckptback-$(1).so) \
       $(eval $(call library,$(1),$(2),checked-$(1),$(CHECKED),-DBACK_CHECKS)) \
       $(eval faults: $(CHECKED)/libckptback-$(1).so)

$(call back,mpich,$(MPICC_MPICH))
$(call back,openmpi,$(MPICC_OPENMPI))
