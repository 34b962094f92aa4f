/* How a field of a format string is laid out; shared by "%5d" % x and "{:5d}".format(x). */
#ifndef RN_TEXT_TEMPLATE_FORMAT_H
#define RN_TEXT_TEMPLATE_FORMAT_H

#include "text/template/run.h"

struct rn_tpl_format {
    uint32_t fill;
    enum rn_origin fill_origin;
    char align;       /* '<' '>' '^' '=', or 0: the type's own */
    char sign;        /* '+' ' ' '-' or 0 */
    char group, type; /* or 0 */
    bool alternate, zero;
    int64_t width, precision; /* -1: not given */
};

void rn_tpl_put_padded(struct rn_run *run, struct rn_sb *sb, const struct rn_str *s, const struct rn_tpl_format *f,
                       char default_align);
void rn_tpl_put_int(struct rn_run *run, struct rn_sb *sb, int64_t value, const struct rn_tpl_format *f);
void rn_tpl_put_float(struct rn_run *run, struct rn_sb *sb, double value, const struct rn_tpl_format *f);

#endif
