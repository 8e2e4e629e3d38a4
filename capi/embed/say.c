// SPDX-License-Identifier: Apache-2.0
//
// say.c: fills a ckpt_error as far as its size goes.
#include <stddef.h>
#include <string.h>

#include "ckpt.h"
#include "embed/embed.h"

void embed_say(ckpt_error *error, int code, const char *why) {
    const size_t text = offsetof(ckpt_error, message);
    if (error == NULL) return;
    if (error->size >= offsetof(ckpt_error, code) + sizeof error->code) error->code = code;
    if (error->size <= text) return;
    size_t room = error->size - text, n = strlen(why);
    if (room > sizeof error->message) room = sizeof error->message;
    if (n > room - 1) n = room - 1;
    memcpy(error->message, why, n);
    error->message[n] = 0;
}
