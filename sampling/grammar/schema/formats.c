/* The formats of JSON Schema as regular expressions. See parts.h.
 *
 *     date, time, date-time   RFC 3339; the days that there are; the 60th second where it is 23:59:60 in UTC, by
 *                             offsets of whole and half hours: others would take thousands of states
 *     duration                ISO 8601 as in RFC 3339, appendix A
 *     email                   RFC 5321: a local part with dots, or in quotes
 *     hostname                RFC 1123: names of up to 63 bytes; of hyphens in the third and fourth place none
 *                             (those names are code for others, which has rules of its own); at most 3 long names, or
 *                             12 of up to 20 bytes, which are never more than 253 bytes
 *     ipv4, ipv6              RFC 2673, RFC 4291
 *     uri, uri-reference      RFC 3986
 *     uuid                    RFC 4122
 *     json-pointer            RFC 6901; relative-json-pointer
 *
 * A format that the standard does not name says nothing of a text; one that it names and that is not known here is
 * refused. */
#include <string.h>

#include "sampling/grammar/schema/parts.h"

#define MONTH_DAY                                                                            \
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)" \
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
#define LEAP_YEAR "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
#define DATE "(?:[0-9]{4}-" MONTH_DAY "|" LEAP_YEAR "-02-29)"
#define HOUR "(?:[01][0-9]|2[0-3])"
#define FRACTION "(?:\\.[0-9]+)?"
#define SECOND_60 ":60" FRACTION
/* The leap second in the hour h: an offset to the east is h:mm less 23:59; one to the west is as far from the other end
 * of the day. */
#define LEAP(h, next, other) \
    "|" h ":(?:59" SECOND_60 "(?:\\+" next "|-" other "):00|29" SECOND_60 "(?:\\+" h "|-" other "):30)"
/* clang-format off */
#define LEAPS "|23:59" SECOND_60 "[Zz]"                                                                               \
    LEAP("00", "01", "23") LEAP("01", "02", "22") LEAP("02", "03", "21") LEAP("03", "04", "20")                       \
    LEAP("04", "05", "19") LEAP("05", "06", "18") LEAP("06", "07", "17") LEAP("07", "08", "16")                       \
    LEAP("08", "09", "15") LEAP("09", "10", "14") LEAP("10", "11", "13") LEAP("11", "12", "12")                       \
    LEAP("12", "13", "11") LEAP("13", "14", "10") LEAP("14", "15", "09") LEAP("15", "16", "08")                       \
    LEAP("16", "17", "07") LEAP("17", "18", "06") LEAP("18", "19", "05") LEAP("19", "20", "04")                       \
    LEAP("20", "21", "03") LEAP("21", "22", "02") LEAP("22", "23", "01") LEAP("23", "00", "00")
/* clang-format on */
#define TIME "(?:" HOUR ":[0-5][0-9]:[0-5][0-9]" FRACTION "(?:[Zz]|[+-]" HOUR ":[0-5][0-9])" LEAPS ")"

#define HEX "[0-9A-Fa-f]"
#define HEX4 HEX "{1,4}"
#define BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4 BYTE "(?:\\." BYTE "){3}"
#define IPV6                                                                                                          \
    "(?:(?:" HEX4 ":){7}" HEX4 "|(?:" HEX4 ":){6}" IPV4 "|::(?:" HEX4 ":){0,5}" IPV4 "|::(?:" HEX4 "(?::" HEX4        \
    "){0,6})?"                                                                                                        \
    "|" HEX4 "::(?:" HEX4 ":){0,4}" IPV4 "|" HEX4 "::(?:" HEX4 "(?::" HEX4 "){0,5})?"                                 \
    "|" HEX4 "(?::" HEX4 "){1}::(?:" HEX4 ":){0,3}" IPV4 "|" HEX4 "(?::" HEX4 "){1}::(?:" HEX4 "(?::" HEX4 "){0,4})?" \
    "|" HEX4 "(?::" HEX4 "){2}::(?:" HEX4 ":){0,2}" IPV4 "|" HEX4 "(?::" HEX4 "){2}::(?:" HEX4 "(?::" HEX4 "){0,3})?" \
    "|" HEX4 "(?::" HEX4 "){3}::(?:" HEX4 ":){0,1}" IPV4 "|" HEX4 "(?::" HEX4 "){3}::(?:" HEX4 "(?::" HEX4 "){0,2})?" \
    "|" HEX4 "(?::" HEX4 "){4}::" IPV4 "|" HEX4 "(?::" HEX4 "){4}::(?:" HEX4 "(?::" HEX4 "){0,1})?"                   \
    "|" HEX4 "(?::" HEX4 "){5}::(?:" HEX4 ")?|" HEX4 "(?::" HEX4 "){6}::)"

#define ALNUM "[A-Za-z0-9]"
/* One letter, two, three, four; or more, not both of the third and fourth a hyphen. */
#define LONG_NAME                                                                                                      \
    "(?:" ALNUM "|" ALNUM ALNUM "|" ALNUM "[A-Za-z0-9-]" ALNUM "|" ALNUM "[A-Za-z0-9-](?:" ALNUM "|-)" ALNUM "|" ALNUM \
    "[A-Za-z0-9-](?:" ALNUM "[A-Za-z0-9-]|-" ALNUM ")[A-Za-z0-9-]{0,58}" ALNUM ")"
#define SHORT_NAME                                                                                                     \
    "(?:" ALNUM "|" ALNUM ALNUM "|" ALNUM "[A-Za-z0-9-]" ALNUM "|" ALNUM "[A-Za-z0-9-](?:" ALNUM "|-)" ALNUM "|" ALNUM \
    "[A-Za-z0-9-](?:" ALNUM "[A-Za-z0-9-]|-" ALNUM ")[A-Za-z0-9-]{0,15}" ALNUM ")"
#define HOSTNAME "(?:" LONG_NAME "(?:\\." LONG_NAME "){0,2}|" SHORT_NAME "(?:\\." SHORT_NAME "){3,11})"

#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define EMAIL                                                                                                          \
    "(?:" ATOM "(?:\\." ATOM ")*|\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\")@(?:" HOSTNAME "|\\[" IPV4 "\\]|\\[IPv6:" IPV6 "\\" \
    "])"

#define UNRESERVED "A-Za-z0-9._~!$&'()*+,;=\\-"
#define CODED "%" HEX HEX
#define PCHAR "(?:[" UNRESERVED ":@]|" CODED ")"
#define AUTHORITY                                                                                                   \
    "(?:(?:[" UNRESERVED ":]|" CODED ")*@)?(?:\\[(?:" IPV6 "|[vV]" HEX "+\\.[" UNRESERVED ":]+)\\]|(?:[" UNRESERVED \
    "]|" CODED ")*)(?::[0-9]*)?"
#define QUERY "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"
#define ROOTED "//" AUTHORITY "(?:/" PCHAR "*)*|/(?:" PCHAR "+(?:/" PCHAR "*)*)?"
#define URI "[A-Za-z][A-Za-z0-9+.-]*:(?:" ROOTED "|" PCHAR "+(?:/" PCHAR "*)*|)" QUERY
#define URI_RELATIVE "(?:" ROOTED "|(?:[" UNRESERVED "@]|" CODED ")+(?:/" PCHAR "*)*|)" QUERY

#define DURATION                                                                                    \
    "P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)(?:T" DURATION_TIME \
    ")?|T" DURATION_TIME ")"
#define DURATION_TIME "(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
#define POINTER "(?:/(?:[^~/]|~[01])*)*"

static const struct {
    const char *name, *regex; /* NULL: not known here */
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "[Tt]" TIME},
    {"duration", DURATION},
    {"uuid", HEX "{8}(?:-" HEX "{4}){3}-" HEX "{12}"},
    {"email", EMAIL},
    {"hostname", HOSTNAME},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uri", URI},
    {"uri-reference", "(?:" URI "|" URI_RELATIVE ")"},
    {"json-pointer", POINTER},
    {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|" POINTER ")"},
    {"idn-email", NULL},
    {"idn-hostname", NULL},
    {"iri", NULL},
    {"iri-reference", NULL},
    {"uri-template", NULL},
    {"regex", NULL},
};

const char *rn_schema_format(const struct rn_str *name, bool *ignored)
{
    *ignored = true;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strlen(formats[i].name) == name->n && memcmp(formats[i].name, name->bytes, name->n) == 0) {
            *ignored = false;
            return formats[i].regex;
        }
    }
    return NULL;
}
