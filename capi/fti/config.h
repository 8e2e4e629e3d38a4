// SPDX-License-Identifier: Apache-2.0
//
// config.h: the configuration of FTI and VeloC, an INI file whose names have no case.
#ifndef FTI_CONFIG_H
#define FTI_CONFIG_H

#include <stddef.h>

// The value of a key, without blanks and comments around it; other when it is not there.  It is in buffer, of n bytes.
const char *config_get(const char *text, const char *section, const char *key, const char *other,
                       char *buffer, size_t n);
long config_number(const char *text, const char *section, const char *key, long other);
// A new text in which the key has this value, and all else is as it was.  NULL: no memory.
char *config_set(const char *text, const char *section, const char *key, const char *value);

#endif
