# SPDX-License-Identifier: Apache-2.0
#
# What ckptrun preloads into programs that a wrapper starts.  Its constructor runs before all others: nothing
# of the program has happened yet when it takes the process over.
$(PKG)/enter.so: $(OBJ)/capi/enter/enter.o
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -shared -Wl,-z,defs -Wl,-z,now -Wl,-z,initfirst -o $@ $^
PARTS += $(PKG)/enter.so
