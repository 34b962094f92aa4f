/* The filters' functions, by file. What each does is what Jinja2's filter of that name does. */
#ifndef RN_TEXT_TEMPLATE_FILTERS_H
#define RN_TEXT_TEMPLATE_FILTERS_H

#include "text/template/run.h"

#define RN_TPL_FILTER(name) \
    struct rn_value rn_tpl_filter_##name(struct rn_run *run, struct rn_value self, const struct rn_tpl_call *call)

/* filters_text.c */
RN_TPL_FILTER(capitalize);
RN_TPL_FILTER(center);
RN_TPL_FILTER(escape);
RN_TPL_FILTER(forceescape);
RN_TPL_FILTER(format);
RN_TPL_FILTER(indent);
RN_TPL_FILTER(join);
RN_TPL_FILTER(lower);
RN_TPL_FILTER(replace);
RN_TPL_FILTER(safe);
RN_TPL_FILTER(string);
RN_TPL_FILTER(title);
RN_TPL_FILTER(tojson);
RN_TPL_FILTER(trim);
RN_TPL_FILTER(truncate);
RN_TPL_FILTER(upper);
RN_TPL_FILTER(urlencode);
RN_TPL_FILTER(wordcount);
RN_TPL_FILTER(xmlattr);

/* filters_wrap.c */
RN_TPL_FILTER(wordwrap);

/* filters_list.c */
RN_TPL_FILTER(batch);
RN_TPL_FILTER(dictsort);
RN_TPL_FILTER(first);
RN_TPL_FILTER(groupby);
RN_TPL_FILTER(items);
RN_TPL_FILTER(last);
RN_TPL_FILTER(length);
RN_TPL_FILTER(list);
RN_TPL_FILTER(map);
RN_TPL_FILTER(max);
RN_TPL_FILTER(min);
RN_TPL_FILTER(reject);
RN_TPL_FILTER(rejectattr);
RN_TPL_FILTER(reverse);
RN_TPL_FILTER(select);
RN_TPL_FILTER(selectattr);
RN_TPL_FILTER(slice);
RN_TPL_FILTER(sort);
RN_TPL_FILTER(sum);
RN_TPL_FILTER(unique);

/* filters.c */
RN_TPL_FILTER(abs);
RN_TPL_FILTER(attr);
RN_TPL_FILTER(default);
RN_TPL_FILTER(float);
RN_TPL_FILTER(int);
RN_TPL_FILTER(round);

/* A method of str on a value made into a string. */
struct rn_value rn_tpl_call_str_method(struct rn_run *run, struct rn_value self, const char *name,
                                       const struct rn_value *args, size_t n);

#endif
