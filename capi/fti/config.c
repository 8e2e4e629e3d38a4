// SPDX-License-Identifier: Apache-2.0
//
// config.c: reads and changes the text of an INI file.
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config.h"

struct span {
    const char *at;
    size_t n;
};

static struct span trim(const char *at, const char *end) {
    while (at < end && isspace((unsigned char)*at)) at++;
    while (end > at && isspace((unsigned char)end[-1])) end--;
    return (struct span){at, (size_t)(end - at)};
}

static bool is(struct span s, const char *word) {
    return s.n == strlen(word) && strncasecmp(s.at, word, s.n) == 0;
}

static const char *line_end(const char *at) { return at + strcspn(at, "\n"); }

// Finds where a value is, with what follows it on its line left out.  *behind is where a key of the section can be put,
// NULL when there is no such section.
static bool find(const char *text, const char *section, const char *key, struct span *value,
                 const char **behind) {
    bool inside = *section == 0, found = false; // keys before the first section have none
    *behind = NULL;
    for (const char *at = text; *at;) {
        const char *end = line_end(at), *stop = at + strcspn(at, "#;\n"), *next = *end ? end + 1 : end;
        struct span line = trim(at, stop);
        const char *equals = memchr(at, '=', (size_t)(stop - at));
        if (line.n > 2 && line.at[0] == '[' && line.at[line.n - 1] == ']') {
            inside = is(trim(line.at + 1, line.at + line.n - 1), section);
            if (inside) *behind = next;
        } else if (inside && !found && equals != NULL && is(trim(at, equals), key)) {
            *value = trim(equals + 1, stop);
            found = true;
        }
        at = next;
    }
    return found;
}

const char *config_get(const char *text, const char *section, const char *key, const char *other,
                       char *buffer, size_t n) {
    struct span value;
    const char *behind;
    if (!find(text, section, key, &value, &behind) || value.n == 0 || value.n >= n) return other;
    memcpy(buffer, value.at, value.n);
    buffer[value.n] = 0;
    return buffer;
}

long config_number(const char *text, const char *section, const char *key, long other) {
    char buffer[64], *end;
    const char *s = config_get(text, section, key, NULL, buffer, sizeof buffer);
    if (s == NULL) return other;
    long n = strtol(s, &end, 10);
    return *end == 0 ? n : other;
}

char *config_set(const char *text, const char *section, const char *key, const char *value) {
    struct span old;
    const char *behind;
    char *out;
    size_t all = strlen(text) + strlen(section) + strlen(key) + strlen(value) + 16;
    if ((out = malloc(all)) == NULL) return NULL;
    if (find(text, section, key, &old, &behind))
        snprintf(out, all, "%.*s%s%s", (int)(old.at - text), text, value, old.at + old.n);
    else if (behind != NULL)
        snprintf(out, all, "%.*s%s%s = %s\n%s", (int)(behind - text), text,
                 behind > text && behind[-1] != '\n' ? "\n" : "", key, value, behind);
    else
        snprintf(out, all, "%s%s[%s]\n%s = %s\n", text, *text && text[strlen(text) - 1] != '\n' ? "\n" : "",
                 section, key, value);
    return out;
}
