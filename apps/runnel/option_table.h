/* The table of options, for the files that read words and print help. Others see options.h. */
#ifndef RUNNEL_APP_OPTION_TABLE_H
#define RUNNEL_APP_OPTION_TABLE_H

#include "options.h"

enum app_option_kind {
    OPTION_FLAG,       /* bool */
    OPTION_STRING,     /* const char * */
    OPTION_CHOICE,     /* const char *: one of `choices`, parted by bars */
    OPTION_INTEGER,    /* int64_t in [min, max] */
    OPTION_UNSIGNED,   /* uint64_t, all of it */
    OPTION_NUMBER,     /* struct app_number */
    OPTION_SIZE,       /* uint64_t with K, M or G behind it */
    OPTION_REAL,       /* double in [min, max], or in (min, max] if `open` */
    OPTION_REFERENCE,  /* sets device */
    OPTION_DEVICE,     /* const char *: one of `choices`, cpu:LEVEL or cuda:N */
    OPTION_STOPS,      /* appends to stops */
    OPTION_BREAKER,    /* appends to breakers; "none": there are none */
    OPTION_STOP_TOKEN, /* appends to stop_tokens */
    OPTION_TOKENS,     /* ids parted by commas */
    OPTION_LIST,       /* struct app_list: numbers in [min, max] parted by commas */
    OPTION_BIAS,       /* ID=VALUE, appends to biases */
    OPTION_ANSWERS,    /* texts parted by commas, appended to choices */
    OPTION_LORA        /* appends to loras */
};

struct app_option {
    const char *name;  /* NULL: a heading, which is in `help` */
    char letter;       /* 0: none */
    const char *value; /* what stands for it in the help; NULL: it takes none */
    enum app_option_kind kind;
    size_t at; /* of its member in struct app_options */
    double min, max;
    bool open;           /* min itself is not allowed */
    const char *choices; /* parted by bars */
    unsigned commands;
    const char *help;
};

extern const struct app_option app_option_table[];
extern const size_t app_n_options; /* at most APP_MAX_OPTIONS */

/* The option of one of these commands, or NULL. */
const struct app_option *app_option_find(const char *name, unsigned commands);

/* Puts the value `text` (NULL for an option that takes none) where the option's member is. Strings and stops keep
 * pointers into text. False where it is not allowed. */
bool app_option_store(const struct app_option *o, const char *text, struct app_options *options);

/* A finite decimal number: no blanks, no hexadecimal, no words. False: text is none. */
bool app_read_real(const char *text, double *out);

/* A line on stderr: that `text` is not allowed for `name`, and what would have been. */
void app_option_complain(const struct app_option *o, const char *name, const char *text);

#endif
