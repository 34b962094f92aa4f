/* What is known of the machine's GPUs: for runnel doctor and runnel info --devices. */
#ifndef RN_APPS_DEVICES_H
#define RN_APPS_DEVICES_H

#include "common.h"

/* "name    text" on standard output. */
void app_fact(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A fact each: kernels, driver, devices, what "auto" chooses and why. */
void app_devices_print(runnel_engine *engine);

/* runnel info --devices. */
int app_devices(const struct app_options *options);

#endif
