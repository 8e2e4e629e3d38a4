// SPDX-License-Identifier: Apache-2.0
//
// Contents of infos, and the words of descriptors that hold them: random ones are read as they were written,
// and those that are cut or changed are refused, with nothing read beyond them.
#include "canon/info.h"

#include "back/object/describe.h"
#include "host/test/test.h"

enum { ROUNDS = 20000, PAIRS = 5, LONGEST = 9 };

static char *text(char *at, uint64_t least) {
    for (uint64_t n = least + below(LONGEST); n; n--) *at++ = (char)('a' + below(3));
    *at++ = 0;
    return at;
}

// An info's content and its bytes; keys may come twice, then the first counts.
static size_t make(char *content, char key[PAIRS][LONGEST + 2], const char *value[PAIRS], int *pairs) {
    char *at = content;
    *pairs = (int)below(PAIRS + 1);
    for (int i = 0; i < *pairs; i++) {
        const char *begin = at;
        at = text(at, 1);
        strcpy(key[i], begin);
        value[i] = at;
        at = text(at, 0);
    }
    *at++ = 0;
    return (size_t)(at - content);
}

static void one(void) {
    char content[PAIRS * 2 * (LONGEST + 2) + 1], key[PAIRS][LONGEST + 2];
    const char *value[PAIRS];
    int pairs;
    size_t n = make(content, key, value, &pairs);
    SAME(info_bytes(content), n);
    SAME(info_bytes(NULL), 0);
    CHECK(info_value(content, "d") == NULL && info_value(NULL, "a") == NULL);
    for (int i = 0; i < pairs; i++) {
        int first = 0;
        while (strcmp(key[first], key[i])) first++;
        CHECK(info_value(content, key[i]) == value[first]);
    }

    // From elsewhere: with a NUL behind, in memory of that size.
    for (size_t cut = 0; cut <= n; cut++) {
        char *copy = malloc(cut + 1);
        memcpy(copy, content, cut);
        copy[cut] = 0;
        size_t got = info_bytes_within(copy, cut);
        CHECK(cut == n ? got == n : got == 0);
        free(copy);
    }

    // In a descriptor, between two numbers.
    struct writer w = {0};
    uint64_t number = below(UINT64_MAX);
    put(&w, DESCRIBE_VERSION);
    put_bytes(&w, content, n);
    put64(&w, number);
    CHECK(!w.failed);
    for (size_t words = 0; words <= w.n; words++) {
        int32_t *copy = malloc(4 * words + 1);
        memcpy(copy, w.word, 4 * words);
        struct reader r = reader_of(copy, 4 * words);
        char *read = get_content(&r);
        uint64_t behind = get64(&r);
        CHECK(r.failed == (words < w.n));
        if (!r.failed)
            CHECK(read != NULL && memcmp(read, content, n) == 0 && behind == number && r.at == r.n);
        free(read);
        free(copy);
    }
    // Changed: whatever it reads is a content or nothing.
    w.word[below(w.n)] = (int32_t)below(UINT32_MAX);
    struct reader r = reader_of(w.word, 4 * w.n);
    char *read = get_content(&r);
    if (read != NULL) CHECK(info_bytes(read) > 0);
    free(read);
    free(w.word);
}

int main(void) {
    for (int i = 0; i < ROUNDS; i++) one();
    printf("info: %d contents\n", ROUNDS);
    return 0;
}
