// SPDX-License-Identifier: Apache-2.0
//
// words.c: names of numbers, and rates, as the machine's library has them.
#include "verbs/front/front.h"

#include <stdio.h>

// Asked once for each number; what was answered stays where it is.
static const char *word(enum v_text kind, int number) {
    enum { NUMBERS = 40, BYTES = 64 };
    static char text[4][NUMBERS + 1][BYTES];
    int i = number >= -1 && number < NUMBERS - 1 ? number + 1 : NUMBERS;
    char one[BYTES] = "unknown";
    if (!front_load()) CROSS(V_TEXT, kind, number, (long)one, sizeof one);
    if (strcmp(text[kind][i], one)) memcpy(text[kind][i], one, sizeof one);
    return text[kind][i];
}

API const char *ibv_wc_status_str(enum ibv_wc_status status) { return word(V_TEXT_STATUS, (int)status); }
API const char *ibv_node_type_str(enum ibv_node_type type) { return word(V_TEXT_NODE, (int)type); }
API const char *ibv_port_state_str(enum ibv_port_state state) { return word(V_TEXT_PORT, (int)state); }
API const char *ibv_event_type_str(enum ibv_event_type type) { return word(V_TEXT_EVENT, (int)type); }

static int rate(enum v_rate what, int number) { return front_load() ? -1 : (int)CROSS(V_RATE, what, number); }

API int ibv_rate_to_mult(enum ibv_rate r) { return rate(V_RATE_TO_MULT, (int)r); }
API enum ibv_rate mult_to_ibv_rate(int mult) { return (enum ibv_rate)rate(V_RATE_OF_MULT, mult); }
API int ibv_rate_to_mbps(enum ibv_rate r) { return rate(V_RATE_TO_MBPS, (int)r); }
API enum ibv_rate mbps_to_ibv_rate(int mbps) { return (enum ibv_rate)rate(V_RATE_OF_MBPS, mbps); }
