# SPDX-License-Identifier: Apache-2.0
#
# The backs: one library per real MPI, compiled with that MPI's compiler wrapper.

BACK_SRCS := $(wildcard capi/back/*.c capi/back/*/*.c)

# $(call back,NAME,COMPILER)
define back
BACK_$(1)_OBJS := $(patsubst %.c,$(OBJ)/back-$(1)/%.o,$(BACK_SRCS))
$(OBJ)/back-$(1)/%.o: %.c
	@mkdir -p $$(@D)
	$(2) $(C_FLAGS) -Icapi $(CFLAGS) -fPIC -fvisibility=hidden -c -o $$@ $$<
$(PKG)/back/libckptback-$(1).so: $$(BACK_$(1)_OBJS) | $(LIB)/libckpt.so $(LIB)/libckpt.so.1
	@mkdir -p $$(@D)
	$(2) $(CFLAGS) -shared -o $$@ $$^ -L$(LIB) -lckpt -Wl,-rpath,'$$$$ORIGIN/../..'
PARTS += $(PKG)/back/libckptback-$(1).so
endef

$(eval $(call back,mpich,$(MPICC_MPICH)))
$(eval $(call back,openmpi,$(MPICC_OPENMPI)))
