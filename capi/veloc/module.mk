# SPDX-License-Identifier: Apache-2.0
#
# libckpt_veloc.so, once for each MPI: VeloC's functions over libckpt.so.
VELOC_SRCS := capi/veloc/veloc.c capi/fti/config.c
# $(call veloc,MPI,mpicc)
define veloc
$(PKG)/veloc/$(1)/libckpt_veloc.so: $(VELOC_SRCS) capi/veloc/module.mk capi/fti/config.h include/veloc/veloc.h include/mpix_checkpoint.h $(LIB)/libckpt.so $(LIB)/libckpt.so.1
	@mkdir -p $$(@D)
	$(2) $(C_FLAGS) $(CFLAGS) -MF $(OBJ)/veloc-$(1).d -Icapi -fPIC -fvisibility=hidden -shared -Wl,-z,defs -Wl,-z,now -Wl,-soname,libckpt_veloc.so.1 \
	    -Wl,-rpath,'$$$$ORIGIN/../../..' -o $$@ $(VELOC_SRCS) -L$(LIB) -lckpt
# The name that programs look for; it changes when one of them would not run any more.
$(PKG)/veloc/$(1)/libckpt_veloc.so.1: | $(PKG)/veloc/$(1)/libckpt_veloc.so
	ln -sfn libckpt_veloc.so $$@
PARTS += $(PKG)/veloc/$(1)/libckpt_veloc.so $(PKG)/veloc/$(1)/libckpt_veloc.so.1
endef
$(call each_mpi,veloc)
