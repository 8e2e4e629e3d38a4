// SPDX-License-Identifier: Apache-2.0
#include "params.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int set_source(struct params *p, const char *value) {
    struct source s;
    if (p->nsources == MAX_SOURCES ||
        sscanf(value, "%lf %lf %lf %lf", &s.x, &s.y, &s.radius, &s.temperature) != 4)
        return -1;
    p->sources[p->nsources++] = s;
    return 0;
}

static int set_name(char name[MAX_NAME], const char *value) {
    size_t length = strlen(value);
    if (length == 0 || length >= MAX_NAME) return -1;
    memcpy(name, value, length + 1);
    return 0;
}

static int set(struct params *p, const char *key, const char *value) {
    const struct {
        const char *key, *format;
        void *place;
    } numbers[] = {
        {"rows", "%d", &p->rows},
        {"columns", "%d", &p->columns},
        {"steps", "%d", &p->steps},
        {"report_every", "%d", &p->report_every},
        {"checkpoint_every", "%d", &p->checkpoint_every},
        {"diffusivity", "%lf", &p->diffusivity},
        {"tolerance", "%lf", &p->tolerance},
        {"seed", "%ld", &p->seed},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (strcmp(key, numbers[i].key) == 0)
            return sscanf(value, numbers[i].format, numbers[i].place) == 1 ? 0 : -1;
    if (strcmp(key, "source") == 0) return set_source(p, value);
    if (strcmp(key, "output") == 0) return set_name(p->output, value);
    if (strcmp(key, "log") == 0) return set_name(p->log, value);
    return -1;
}

static int check(const struct params *p, char *why, size_t bytes) {
    const char *wrong = NULL;
    if (p->rows < 1 || p->columns < 1)
        wrong = "rows and columns must be at least 1";
    else if (p->steps < 0 || p->report_every < 1 || p->checkpoint_every < 0)
        wrong = "steps and checkpoint_every must not be negative, report_every not below 1";
    else if (!(p->diffusivity > 0 && p->diffusivity < 0.2))
        wrong = "diffusivity must lie between 0 and 0.2, or the scheme is not stable";
    else if (p->output[0] == '\0' || p->log[0] == '\0')
        wrong = "output and log must name files";
    if (wrong != NULL) snprintf(why, bytes, "%s", wrong);
    return wrong != NULL ? -1 : 0;
}

int params_read(struct params *p, const char *file, char *const *settings, char *why, size_t bytes) {
    char line[512], key[32];
    int start, number = 0;

    memset(p, 0, sizeof *p);
    p->report_every = 10;
    FILE *f = fopen(file, "r");
    if (f == NULL) {
        snprintf(why, bytes, "%s: %s", file, strerror(errno));
        return -1;
    }
    while (fgets(line, sizeof line, f) != NULL) {
        number++;
        line[strcspn(line, "#\n")] = '\0';
        for (size_t end = strlen(line); end > 0 && line[end - 1] == ' '; end--) line[end - 1] = '\0';
        start = 0;
        if (sscanf(line, " %31s %n", key, &start) == 1 && set(p, key, line + start) != 0) {
            snprintf(why, bytes, "%s, line %d: cannot use \"%s\"", file, number, line);
            fclose(f);
            return -1;
        }
    }
    fclose(f);
    for (; *settings != NULL; settings++) {
        start = 0;
        sscanf(*settings, "%31[a-z_]=%n", key, &start);
        if (start == 0 || set(p, key, *settings + start) != 0) {
            snprintf(why, bytes, "cannot use the argument \"%s\"", *settings);
            return -1;
        }
    }
    return check(p, why, bytes);
}
