/* Preloaded: the wall clock is off by as many seconds as the file CLOCK_OFFSET names says; others run on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long offset(void) {
    const char *name = getenv("CLOCK_OFFSET");
    long seconds = 0;
    FILE *file = name ? fopen(name, "r") : NULL;
    if (file) {
        if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
        fclose(file);
    }
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int done = ((int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime"))(clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += offset();
    return done;
}

int gettimeofday(struct timeval *now, void *zone) {
    int done = ((int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday"))(now, zone);
    now->tv_sec += offset();
    return done;
}

time_t time(time_t *now) {
    time_t found = ((time_t (*)(time_t *))dlsym(RTLD_NEXT, "time"))(NULL) + offset();
    if (now) *now = found;
    return found;
}
