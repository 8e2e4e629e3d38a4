# SPDX-License-Identifier: Apache-2.0
#
# libckpt_fti.so, once for each MPI: FTI's functions over libckpt.so.
FTI_SRCS := $(wildcard capi/fti/*.c)
# $(call fti,MPI,mpicc)
define fti
$(PKG)/fti/$(1)/libckpt_fti.so: $(FTI_SRCS) capi/fti/state.h capi/fti/config.h include/fti/fti.h include/mpix_checkpoint.h $(LIB)/libckpt.so $(LIB)/libckpt.so.1
	@mkdir -p $$(@D)
	$(2) $(C_FLAGS) $(CFLAGS) -MF $(OBJ)/fti-$(1).d -fPIC -fvisibility=hidden -shared -Wl,-z,defs -Wl,-z,now -Wl,-soname,libckpt_fti.so \
	    -Wl,-rpath,'$$$$ORIGIN/../../..' -o $$@ $(FTI_SRCS) -L$(LIB) -lckpt
PARTS += $(PKG)/fti/$(1)/libckpt_fti.so
endef
$(call each_mpi,fti)
