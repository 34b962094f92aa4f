/* The filters' functions, by file. What each does is what Jinja2's filter of that name does. */
#ifndef RN_TEXT_TEMPLATE_FILTERS_H
#define RN_TEXT_TEMPLATE_FILTERS_H

#include "text/template_run.h"

#define RN_FILTER(name) \
    struct rn_value rn_filter_##name(struct rn_run *run, struct rn_value self, const struct rn_call *call)

/* template_filters_text.c */
RN_FILTER(capitalize);
RN_FILTER(center);
RN_FILTER(escape);
RN_FILTER(forceescape);
RN_FILTER(format);
RN_FILTER(indent);
RN_FILTER(join);
RN_FILTER(lower);
RN_FILTER(replace);
RN_FILTER(safe);
RN_FILTER(string);
RN_FILTER(title);
RN_FILTER(tojson);
RN_FILTER(trim);
RN_FILTER(truncate);
RN_FILTER(upper);
RN_FILTER(urlencode);
RN_FILTER(wordcount);
RN_FILTER(xmlattr);

/* template_filters_wrap.c */
RN_FILTER(wordwrap);

/* template_filters_list.c */
RN_FILTER(batch);
RN_FILTER(dictsort);
RN_FILTER(first);
RN_FILTER(groupby);
RN_FILTER(items);
RN_FILTER(last);
RN_FILTER(length);
RN_FILTER(list);
RN_FILTER(map);
RN_FILTER(max);
RN_FILTER(min);
RN_FILTER(reject);
RN_FILTER(rejectattr);
RN_FILTER(reverse);
RN_FILTER(select);
RN_FILTER(selectattr);
RN_FILTER(slice);
RN_FILTER(sort);
RN_FILTER(sum);
RN_FILTER(unique);

/* template_filters.c */
RN_FILTER(abs);
RN_FILTER(attr);
RN_FILTER(default);
RN_FILTER(float);
RN_FILTER(int);
RN_FILTER(round);

/* A method of str on a value made into a string. */
struct rn_value rn_call_str_method(struct rn_run *run, struct rn_value self, const char *name,
                                   const struct rn_value *args, size_t n);

#endif
