// SPDX-License-Identifier: Apache-2.0
//
// fs_code.h: where the code of a loaded object addresses memory through FS.
//
// Owns: an object's segments and unwind tables, as far as they tell where its instructions are.
// May not know: what is done with the instructions.
#ifndef CKPT_FS_CODE_H
#define CKPT_FS_CODE_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEGMENTS 8

struct object {
    uint64_t base;
    const Elf64_Phdr *phdr;
    unsigned phnum;
    const uint8_t *unwind; // .eh_frame_hdr, NULL: none
    bool static_tls;       // has relocations for which the compiler reads FS itself
    bool go;               // has code of Go, which has no unwind tables
    struct {
        uint8_t *at, *end;
        int prot;
    } code[SEGMENTS];
    unsigned segments;
};

// False: no ELF object, or one with more segments of code than there is room for.
bool object_read(const struct link_map *m, struct object *o);

// The prefixes of the instructions that were found, by address.
struct found {
    uint8_t **at;
    size_t count, room;
    bool full;
};

// Finds all but the checks of stack protectors (fs:0x28).  False: code is not understood.  found is to be
// given back either way.  Neither thread-local storage nor the allocator is used.
bool object_scan(const struct object *o, struct found *found);
void found_done(struct found *f);

// Whether a place is in a segment of code.  It is not looked at.
bool object_has_code(const struct object *o, const uint8_t *at);

// Whether object_scan could find this place: it is in a segment of code, and what begins there is the prefix of
// an instruction that addresses memory through FS, other than the check of a stack protector.
bool object_has_prefix(const struct object *o, const uint8_t *at);

#endif
