# SPDX-License-Identifier: Apache-2.0
#
# libckpt_fti.so, once for each MPI: FTI's functions over libckpt.so.
FTI_SRCS := $(wildcard capi/fti/*.c)
# $(call fti,MPI,mpicc)
define fti
$(PKG)/fti/$(1)/libckpt_fti.so: $(FTI_SRCS) capi/fti/module.mk capi/fti/state.h capi/fti/config.h include/fti/fti.h include/mpix_checkpoint.h $(LIB)/libckpt.so $(LIB)/libckpt.so.1
	@mkdir -p $$(@D)
	$(2) $(C_FLAGS) $(CFLAGS) -MF $(OBJ)/fti-$(1).d -fPIC -fvisibility=hidden -shared -Wl,-z,defs -Wl,-z,now -Wl,-soname,libckpt_fti.so.1 \
	    -Wl,-rpath,'$$$$ORIGIN/../../..' -o $$@ $(FTI_SRCS) -L$(LIB) -lckpt
# The name that programs look for; it changes when one of them would not run any more.
$(PKG)/fti/$(1)/libckpt_fti.so.1: | $(PKG)/fti/$(1)/libckpt_fti.so
	ln -sfn libckpt_fti.so $$@
PARTS += $(PKG)/fti/$(1)/libckpt_fti.so $(PKG)/fti/$(1)/libckpt_fti.so.1
endef
$(call each_mpi,fti)
