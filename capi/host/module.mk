# SPDX-License-Identifier: Apache-2.0
#
# Signal handlers of ckptrun may begin with the other half's FS base: nothing may read thread-local storage
# before they have switched it, and a stack protector would.
$(BIN)/ckptrun: C_EXTRA := -fno-stack-protector -fcf-protection=none

# The test includes arena.c itself: the object of ckptrun is compiled with the above.
C_TESTS += $(OBJ)/capi/host/test/arena
$(OBJ)/capi/host/test/arena: $(OBJ)/capi/host/test/arena.o
	$(CC) $(CFLAGS) -o $@ $^
