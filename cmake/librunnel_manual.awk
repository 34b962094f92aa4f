# librunnel(3) of the public headers: their comments are its text, their declarations its synopses.
#
#   awk -v version=0.1.0 -f cmake/librunnel_manual.awk include/runnel.h include/runnel_status.h ... >librunnel.3

function escaped(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    if (text ~ /^[.']/)
        text = "\\&" text
    return text
}

# A comment's line without its marks; what is indented stays as it is.
function put_line(text) {
    sub(/^\/\* ?/, "", text)
    sub(/^ \* ?/, "", text)
    sub(/ ?\*\/$/, "", text)
    if (text ~ /^ / && !drawn)
        print ".nf"
    else if (text !~ /^ / && drawn)
        print ".fi"
    drawn = text ~ /^ /
    print text == "" ? ".PP" : escaped(text)
}

function put_text(   i) {
    drawn = 0
    for (i = 1; i <= n_text; i++)
        put_line(text_of[i])
    if (drawn)
        print ".fi"
    n_text = 0
}

function put_block(   i) {
    if (n_code == 0) {
        if (n_text > 0 && head)
            print ".PP"
        put_text()
    } else {
        print ".PP\n.nf"
        for (i = 1; i <= n_code; i++)
            print (braces ? escaped(code_of[i]) : "\\fB" escaped(code_of[i]) "\\fR")
        print ".fi"
        if (n_text > 0) {
            print ".RS"
            put_text()
            print ".RE"
        }
    }
    n_code = n_text = braces = 0
}

BEGIN {
    print ".TH LIBRUNNEL 3 \"\" \"runnel " version "\" \"Library Functions\""
    print ".SH NAME\nlibrunnel \\- token streams from language models on your own event loop"
    print ".SH SYNOPSIS\n.nf\n\\fB#include <runnel.h>\\fR\n.PP"
    print "cc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs runnel)\n.fi"
}

FNR == 1 {
    put_block()
    name = FILENAME
    sub(/.*\//, "", name)
    print ".SH \"" toupper(escaped(name)) "\""
    head = 1
}

# A comment that begins a block; comments behind code stay with the code.
!inside && n_code == 0 && /^\/\*/ && !/^\/\* ----/ {
    inside = 1
}
inside {
    text_of[++n_text] = $0
    if (/\*\/$/) {
        inside = 0
        if (head)
            put_block()
        head = 0
    }
    next
}
/^\/\* ---- / {
    put_block()
    title = $0
    gsub(/^\/\* -+ | -+ \*\/$/, "", title)
    print ".SS \"" escaped(title) "\""
    next
}
/^#ifdef __cplusplus/ { skip = 1 }
/^#(ifndef|include|undef)|^#define RUNNEL[A-Z_]*_H$|^#if |^#else/ || skip {
    if (/^#endif/)
        skip = 0
    next
}
/^#endif/ { next }
/^$/ {
    put_block()
    next
}
{
    sub(/RUNNEL_API /, "")
    sub(/ *\\$/, " \\")
    code_of[++n_code] = $0
    braces = braces || /\{/
}
END { put_block() }
