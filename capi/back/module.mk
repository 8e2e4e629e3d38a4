# SPDX-License-Identifier: Apache-2.0
#
# The backs: one library per real MPI, compiled with that MPI's compiler wrapper.

BACK_SRCS := $(wildcard capi/back/*.c capi/back/*/*.c)

# $(call back,NAME,COMPILER,OBJECTS,FOLDER,FLAGS)
define back
$(OBJ)/$(3)/%.o: %.c
	@mkdir -p $$(@D)
	$(2) $(C_FLAGS) -Icapi $(5) $(CFLAGS) -fPIC -fvisibility=hidden -c -o $$@ $$<
$(4)/libckptback-$(1).so: $(patsubst %.c,$(OBJ)/$(3)/%.o,$(BACK_SRCS)) | $(LIB)/libckpt.so $(LIB)/libckpt.so.1
	@mkdir -p $$(@D)
	$(2) $(CFLAGS) -shared -o $$@ $$^ -L$(LIB) -lckpt -Wl,-rpath,'$$$$ORIGIN/../..'
endef

$(eval $(call back,mpich,$(MPICC_MPICH),back-mpich,$(PKG)/back))
$(eval $(call back,openmpi,$(MPICC_OPENMPI),back-openmpi,$(PKG)/back))
PARTS += $(PKG)/back/libckptback-mpich.so $(PKG)/back/libckptback-openmpi.so

# The same for the tree for tests, with checks of what is true at all times.
CHECKED := $(OBJ)/checked
$(eval $(call back,mpich,$(MPICC_MPICH),checked-mpich,$(CHECKED),-DBACK_CHECKS))
$(eval $(call back,openmpi,$(MPICC_OPENMPI),checked-openmpi,$(CHECKED),-DBACK_CHECKS))
faults: $(CHECKED)/libckptback-mpich.so $(CHECKED)/libckptback-openmpi.so
