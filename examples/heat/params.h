// SPDX-License-Identifier: Apache-2.0
//
// params.h: what a run is to compute, as read from a parameter file.
#ifndef HEAT_PARAMS_H
#define HEAT_PARAMS_H

#include <stddef.h>

enum { MAX_SOURCES = 16, MAX_NAME = 256 };

// A disc that is kept at a temperature.  Lengths are fractions of the plate's sides.
struct source {
    double x, y, radius, temperature;
};

struct params {
    int rows, columns;    // cells of the grid
    int steps;            // at most so many
    int report_every;     // steps between two lines of the log
    int checkpoint_every; // steps between two checkpoints; 0: none
    double diffusivity;   // of the mean material, in cells^2 a step; below 0.2 for stability
    double tolerance;     // ends the run when no cell changes by more in a step; 0: never
    long seed;            // of the material's grain and of the noise at start
    int nsources;
    struct source sources[MAX_SOURCES];
    char output[MAX_NAME]; // raw file of doubles, row by row
    char log[MAX_NAME];
};

// Reads file, then settings of the form name=value, which win.  Returns 0, or -1 with one line in why.
int params_read(struct params *p, const char *file, char *const *settings, char *why, size_t bytes);

#endif
