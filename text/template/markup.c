/* Markup: strings that |safe and |escape give. Autoescaping is off, so that Markup differs from a string in this
 * alone: what is added to it, joined by it or formatted into it is escaped. */
#include <string.h>

#include "text/template/run.h"

const struct rn_str *rn_tpl_escape(struct rn_run *run, struct rn_value value)
{
    static const char special[] = "&<>'\"";
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const struct rn_str *s = rn_tpl_str_value(run, value);
    size_t from = 0, at;
    struct rn_sb sb;

    if (s->markup)
        return s;
    rn_sb_init(&sb, &run->arena);
    for (at = 0; at < s->n; at++) {
        const char *found = s->bytes[at] == '\0' ? NULL : strchr(special, s->bytes[at]);

        if (found == NULL)
            continue;
        rn_sb_slice(&sb, s, from, at);
        rn_sb_bytes(&sb, entities[found - special], strlen(entities[found - special]), rn_str_origin_at(s, at));
        from = at + 1;
    }
    rn_sb_slice(&sb, s, from, s->n);
    return rn_str_marked(&run->arena, rn_sb_done(&sb), true);
}
