// SPDX-License-Identifier: Apache-2.0
//
// scenario.h: runs the scenarios of elections that the Go package rails has too (rails/testdata/README.md has their
// form), against rails.c.
#ifndef SCENARIO_H
#define SCENARIO_H

enum { MOST_RAILS = 16, MOST_PROCESSES = 64 };

// What connect and reopen of a rail answer, and its gate.
struct played {
    ckpt_rail *rail;
    char name[32];
    size_t least, most;
    int kinds; // 0: all
    struct {
        int rc;
        char why[100];
    } connect[MOST_PROCESSES], reopen;
    bool opened[MOST_PROCESSES]; // to which reopen adds endpoints
    ckpt_endpoint endpoint[MOST_PROCESSES];
};
static struct {
    struct embed_job job;
    ckpt_tables tables;
    int processes, rails;
    struct played rail[MOST_RAILS];
    char calls[1000]; // callbacks of this election
    const char *failed;
} play;

static const char *play_failure(void *ctx) {
    (void)ctx;
    return play.failed;
}
static int play_ranks(void *ctx) {
    (void)ctx;
    return play.processes;
}
__attribute__((format(printf, 1, 2))) static void play_called(const char *format, ...) {
    va_list args;
    size_t n = strlen(play.calls);
    if (n > 0) n += (size_t)snprintf(play.calls + n, sizeof play.calls - n, ", ");
    va_start(args, format);
    vsnprintf(play.calls + n, sizeof play.calls - n, format, args);
    va_end(args);
}
static int play_gate(void *ctx, size_t bytes, int kind) {
    const struct played *p = ctx;
    return bytes >= p->least && bytes <= p->most && (p->kinds == 0 || (p->kinds & kind) != 0);
}
static ckpt_endpoint *play_endpoint(struct played *p, int process) {
    p->endpoint[process] = (ckpt_endpoint){.rail = p->rail, .process = process};
    return &p->endpoint[process];
}
static int play_connect(void *ctx, int process, ckpt_endpoint **out) {
    struct played *p = ctx;
    play_called("%s.connect %d", p->name, process);
    if (p->connect[process].rc == 0) *out = play_endpoint(p, process);
    play.failed = p->connect[process].why;
    return p->connect[process].rc;
}
static int play_close(void *ctx) {
    (void)ctx;
    return 0;
}
static int play_reopen(void *ctx, int why) {
    struct played *p = ctx;
    (void)why;
    play_called("%s.reopen", p->name);
    for (int i = 0; i < play.processes; i++)
        if (p->opened[i]) CHECK(ckpt_endpoint_add(&play.job.seen, play_endpoint(p, i)) == 0);
    play.failed = p->reopen.why;
    return p->reopen.rc;
}

static void play_end(void) {
    embed_rails_end(&play.job);
    memset(&play, 0, sizeof play);
    play.processes = MOST_PROCESSES;
    play.job.seen.tables = &play.tables;
    play.job.ops.size = sizeof play.job.ops;
    play.job.ops.ranks = play_ranks;
    play.job.ops.failure = play_failure;
}

// Words of a line, and where in the file it is.
struct at {
    const char *file;
    int line;
    char *rest;
};
__attribute__((noreturn)) static void play_bad(const struct at *at, const char *what) {
    printf("%s:%d: %s\n", at->file, at->line, what);
    exit(1);
}
static char *play_word(struct at *at) {
    char *word = strsep(&at->rest, " ");
    return word != NULL && *word != 0 ? word : NULL;
}
static const char *play_need(struct at *at) {
    const char *word = play_word(at);
    if (word == NULL) play_bad(at, "a word is missing");
    return word;
}
static long play_number(struct at *at, const char *word) {
    char *end;
    long n = strtol(word, &end, 10);
    if (*end != 0) play_bad(at, "not a number");
    return n;
}
static int play_process(struct at *at, const char *word) {
    long n = play_number(at, word);
    if (n < 0 || n >= MOST_PROCESSES) play_bad(at, "no process");
    return (int)n;
}
static struct played *play_rail(struct at *at) {
    const char *name = play_need(at);
    for (int i = 0; i < play.rails; i++)
        if (strcmp(play.rail[i].name, name) == 0) return &play.rail[i];
    play_bad(at, "no such rail");
}
static void play_rest(struct at *at, char *to, size_t bytes) {
    snprintf(to, bytes, "%s", at->rest ? at->rest : "");
}

static int play_kinds(struct at *at, char *list) {
    static const char *const names[] = {"eager", "rendezvous", "rma", "control"};
    int kinds = 0;
    for (char *word; (word = strsep(&list, ",")) != NULL;) {
        int kind = 0;
        for (int i = 0; i < 4; i++)
            if (strcmp(word, names[i]) == 0) kind = 1 << i;
        kinds |= kind != 0 ? kind : (int)play_number(at, word);
    }
    return kinds;
}

static void play_register(struct at *at) {
    if (play.rails == MOST_RAILS) play_bad(at, "too many rails");
    struct played *p = &play.rail[play.rails++];
    snprintf(p->name, sizeof p->name, "%s", play_need(at));
    p->most = SIZE_MAX;
    ckpt_rail_ops ops = {sizeof ops, p->name,    (int)play_number(at, play_need(at)),
                         0,          play_gate,  play_connect,
                         NULL,       play_close, play_reopen};
    for (char *word; (word = play_word(at)) != NULL;) {
        if (strcmp(word, "demand") == 0)
            ops.flags |= CKPT_RAIL_ON_DEMAND;
        else if (strcmp(word, "lazy") == 0)
            ops.flags |= CKPT_RAIL_LAZY;
        else if (strcmp(word, "node") == 0)
            ops.flags |= CKPT_RAIL_NODE;
        else if (strcmp(word, "checkpointable") == 0)
            ops.flags |= CKPT_RAIL_CHECKPOINTABLE;
        else if (strncmp(word, "least=", 6) == 0)
            p->least = (size_t)play_number(at, word + 6);
        else if (strncmp(word, "most=", 5) == 0)
            p->most = (size_t)play_number(at, word + 5);
        else if (strncmp(word, "kinds=", 6) == 0)
            p->kinds |= play_kinds(at, word + 6);
        else
            play_bad(at, "no such property of a rail");
    }
    if (p->least == 0 && p->most == SIZE_MAX && p->kinds == 0) ops.gate = NULL;
    ckpt_error error = {.size = sizeof error};
    if (ckpt_rail_register(&play.job.seen, &ops, p, &p->rail, &error) != 0) play_bad(at, error.message);
}

static void play_state(struct at *at) {
    static const struct {
        const char *name;
        enum state state;
    } states[] = {{"open", OPEN}, {"draining", DRAINING}, {"closed", CLOSED},
                  {"due", DUE},   {"opening", OPENING},   {"broken", BROKEN}};
    struct played *p = play_rail(at);
    const char *name = play_need(at);
    p->rail->state = 0;
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (strcmp(states[i].name, name) == 0) p->rail->state = states[i].state;
    if (p->rail->state == 0) play_bad(at, "no such state");
    play_rest(at, p->rail->failed, sizeof p->rail->failed);
}

static int play_answer(struct at *at) {
    static const struct {
        const char *name;
        int rc;
    } answers[] = {
        {"ok", 0}, {"again", CKPT_E_AGAIN}, {"unreachable", CKPT_E_NOTSUP}, {"failed", CKPT_E_SYSTEM}};
    const char *name = play_need(at);
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        if (strcmp(answers[i].name, name) == 0) return answers[i].rc;
    play_bad(at, "no such answer");
}

// "elect PROCESS BYTES KIND = ANSWER", or "elect PROCESS BYTES KIND [CALLS] = ANSWER".
static void play_elect(struct at *at) {
    char *want = strstr(at->rest ? at->rest : "", "= ");
    if (want == NULL) play_bad(at, "an election without = and an answer");
    int process = (int)play_number(at, play_need(at));
    size_t bytes = (size_t)play_number(at, play_need(at));
    int kind = play_kinds(at, play_word(at));
    ckpt_error error = {.size = sizeof error};
    play.calls[0] = 0;
    ckpt_endpoint *e = ckpt_elect(&play.job.seen, process, bytes, kind);
    int rc = e != NULL ? 0 : ckpt_route(&play.job.seen, process, bytes, kind, &e, &error);
    const char *said = rc == CKPT_E_AGAIN ? "again" : error.message;
    if (rc == 0) {
        CHECK(e != NULL && e->process == process);
        CHECK(ckpt_elect(&play.job.seen, process, bytes, kind) == e); // and it is listed from now on
        said = ((const struct played *)e->rail->head.ctx)->name;
    }
    char got[2100];
    snprintf(got, sizeof got, "%s%s%s= %s", play.calls[0] ? "[" : "", play.calls, play.calls[0] ? "] " : "",
             said);
    const char *expected = at->rest != NULL && *at->rest == '[' ? at->rest : want;
    if (strcmp(got, expected) != 0) {
        printf("%s:%d: %s\n  expected %s\n", at->file, at->line, got, expected);
        exit(1);
    }
}

// Runs all scenarios of a file, and returns how many elections it had.
static int play_file(const char *name) {
    FILE *f = strcmp(name, "-") == 0 ? stdin : fopen(name, "r");
    if (f == NULL) {
        printf("%s: cannot be read\n", name);
        exit(1);
    }
    static char text[2000];
    struct at at = {.file = name};
    int elections = 0;
    play_end();
    while (fgets(text, sizeof text, f) != NULL) {
        at.line++;
        text[strcspn(text, "\n")] = 0;
        at.rest = text;
        const char *verb = play_word(&at);
        if (verb == NULL || *verb == '#') continue;
        if (strcmp(verb, "scenario") == 0) {
            play_end();
        } else if (strcmp(verb, "processes") == 0) {
            play.processes = play_process(&at, play_need(&at));
        } else if (strcmp(verb, "rail") == 0) {
            play_register(&at);
        } else if (strcmp(verb, "state") == 0) {
            play_state(&at);
        } else if (strcmp(verb, "listed") == 0) {
            struct played *p = play_rail(&at);
            for (char *word; (word = play_word(&at)) != NULL;)
                CHECK(ckpt_endpoint_add(&play.job.seen, play_endpoint(p, play_process(&at, word))) == 0);
        } else if (strcmp(verb, "never") == 0) {
            struct played *p = play_rail(&at);
            for (char *word; (word = play_word(&at)) != NULL;)
                p->rail->peer[play_process(&at, word)] = PEER_NEVER;
        } else if (strcmp(verb, "connect") == 0) {
            struct played *p = play_rail(&at);
            int process = play_process(&at, play_need(&at));
            p->connect[process].rc = play_answer(&at);
            play_rest(&at, p->connect[process].why, sizeof p->connect[process].why);
        } else if (strcmp(verb, "reopen") == 0) {
            struct played *p = play_rail(&at);
            p->reopen.rc = play_answer(&at);
            if (p->reopen.rc != 0)
                play_rest(&at, p->reopen.why, sizeof p->reopen.why);
            else
                for (char *word; (word = play_word(&at)) != NULL;) p->opened[play_process(&at, word)] = true;
        } else if (strcmp(verb, "elect") == 0) {
            play_elect(&at);
            elections++;
        } else {
            play_bad(&at, "no such verb");
        }
    }
    play_end();
    if (f != stdin) fclose(f);
    return elections;
}

#endif
