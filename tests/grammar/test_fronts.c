/* Grammars as people write them: texts that they allow and texts that they do not, in GBNF, EBNF and as choices; errors
 * with their places; and grammars made to do harm, which end soon and with a sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/base/refusing.h"
#include "tests/grammar/reading.h"
#include "tests/grammar/words.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define MOST 24

struct example {
    const char *name;
    enum rn_front kind;
    const char *grammar;
    const char *whole[MOST];   /* allowed */
    const char *begins[MOST];  /* the beginning of an allowed text, and no more */
    const char *refused[MOST]; /* not even that */
};

static const struct example examples[] = {
    {"arithmetic",
     RN_FRONT_GBNF,
     "# sums of products\n"
     "root  ::= (expr \"=\" ws term \"\\n\")+\n"
     "expr  ::= term ([-+*/] ws term)*\n"
     "term  ::= ident | num | \"(\" ws expr \")\" ws\n"
     "ident ::= [a-z] [a-z0-9_]* ws\n"
     "num   ::= [0-9]+ ws\n"
     "ws    ::= [ \\t\\n]*\n",
     {"1=2\n", "a + (b*12) = c\n", "x=1\ny=2\n"},
     {"", "(1+(2", "1=", "a_9"},
     {"=", "1+=", "_a", "1 2", ")"}},
    {"left recursion",
     RN_FRONT_GBNF,
     "root ::= sum\n"
     "sum ::= sum \"+\" product | product\n"
     "product ::= product \"*\" atom | atom\n"
     "atom ::= [0-9]+ | \"(\" sum \")\"",
     {"1", "1+2*3", "(1+2)*3", "((((1))))*2+3"},
     {"", "1+", "((1)"},
     {"+", "1++", "()", "1)"}},
    {"left recursion through others",
     RN_FRONT_GBNF,
     "root ::= a\n"
     "a ::= b \"x\" | \"1\"\n"
     "b ::= c \"y\" | \"2\" | empty a \"w\"\n"
     "c ::= a \"z\" | \"3\"\n"
     "empty ::= \"-\"?",
     {"1", "2x", "3yx", "1zyx", "1zyxzyx", "1wx", "-1wx", "-3yxwx"},
     {"3y", "1z", "-1"},
     {"4", "1x", "2y"}},
    {"json",
     RN_FRONT_GBNF,
     "root   ::= object\n"
     "value  ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
     "object ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)*)? \"}\" ws\n"
     "array  ::= \"[\" ws (\n"
     "    value\n"
     "    (\",\" ws value)*\n"
     "  )? \"]\" ws\n"
     "string ::= \"\\\"\" (\n"
     "    [^\"\\\\\\x7F\\x00-\\x1F] |\n"
     "    \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4}) # escapes\n"
     "  )* \"\\\"\" ws\n"
     "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws\n"
     "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n",
     {"{}", "{\"a\":1}", "{\"a\":[1,-2.5e+3,true,{\"b\":null}], \"\\u00e9\":\"\xc3\xa9\"}", "{ }\n  "},
     {"{", "{\"a\":-", "{\"a\":[[[", "{\"a\\u00"},
     {"[", "{a", "{\"a\":01", "{\"a\":tru3", "{\"\n", "{} x", "{\"a\\x"}},
    {"lists",
     RN_FRONT_GBNF,
     "root ::= item+\n"
     "# no line ends in an item\n"
     "item ::= \"- \" [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ \"\\n\"",
     {"- a\n", "- a\n- \xe2\x82\xac b\n"},
     {"- ", "- a\n-"},
     {"-a", "- a\r", "- a\xe2\x80\xa8", "- \xc2\x85"}},
    {"chess",
     RN_FRONT_GBNF,
     "root ::= \"1. \" move \" \" move \"\\n\" ([1-9] [0-9]? \". \" move \" \" move \"\\n\")+\n"
     "move ::= (pawn | nonpawn | castle) [+#]?\n"
     "pawn ::= ([a-h] \"x\")? [a-h] [1-8] (\"=\" [NBKQR])?\n"
     "nonpawn ::= [NBKQR] [a-h]? [1-8]? \"x\"? [a-h] [1-8]\n"
     "castle ::= \"O-O\" \"-O\"?\n",
     {"1. e4 e5\n2. Nf3 Nc6\n", "1. e4 d5\n2. exd5 Qxd5\n3. O-O O-O-O+\n", "1. a8=Q N1xf3\n99. a1 a2\n"},
     {"1. e4 e5\n", "1. Nb", "1. O-O-O"},
     {"2. ", "1. e9", "1. i4", "1. e4 e5\n0"}},
    {"repetition",
     RN_FRONT_GBNF,
     "root ::= \"a\"{2} [bc]{1,} (\"d\" \"e\")?{1,3} {0,1} \"f\"{,2} \"x\"{0}",
     {"aab", "aabcbc", "aabdede", "aabdedede", "aacff", "aacdef"},
     {"a", "aa", "aabd"},
     {"ab", "aabdededede", "aacfff", "aacx"}},
    {"classes",
     RN_FRONT_GBNF,
     "root ::= [a-] [^-z] [\\]\\[\\\\^-] . [\\U0001F600-\\U0001F602]",
     {"-x]\n\xf0\x9f\x98\x81", "a^^\xc3\xa9\xf0\x9f\x98\x82", "aa-a\xf0\x9f\x98\x80"},
     {"", "-x", "aa]\xc3"},
     {"b", "--", "az", "aax", "aa]a\xf0\x9f\x98\x83"}},
    {"lines",
     RN_FRONT_GBNF,
     "root ::=\r\n  one |\r\n  two # here too\r\n  | three\r\n\r\n# a remark\r\none ::= \"1\"\r\ntwo ::= "
     "\"2\"\r\nthree ::= (\r\n\"3\"\r\n)",
     {"1", "2", "3"},
     {""},
     {"4"}},
    {"what follows an ambiguous beginning",
     RN_FRONT_GBNF,
     "root ::= a | b\n"
     "a ::= \"(\" (a | b) \")\" \"1\" | \"x\"\n"
     "b ::= \"(\" (a | b) \")\" \"2\" | \"x\"\n",
     {"x", "(x)1", "(x)2", "((((x)1)2)2)1"},
     {"(", "((((x)1)2)2)"},
     {"y", "(x)3", "()"}},
    {"a rule that is copied",
     RN_FRONT_GBNF,
     "root ::= \"'\" char{2,4} \"'\" char* \"=\" tail{0,2}\n"
     "char ::= [^'\\\\=] | \"\\\\\" ([nrt] | \"u\" hex hex | \"name\" | \"number\" | \"newline\") | \"==\"\n"
     "hex ::= [0-9a-f]\n"
     "tail ::= char \"!\" | char \"?\" char | \"long ago, in a far away land\"",
     {"'ab'=", "'\\u0f\\number'x==y=a!b?c", "'==a\xc3\xa9'=long ago, in a far away landlong ago, in a far away land",
      "'l\\n'=l!"},
     {"'", "'a", "'ab'==", "'ab'=a", "'ab'=long ago", "'ab'\\new"},
     {"''", "'abcde", "'ab'=a!b!c", "'a\\ux", "'ab'=ab"}},
    {"calculator",
     RN_FRONT_EBNF,
     "?start: sum\n"
     "      | NAME \"=\" sum    -> assign_var\n"
     "\n"
     "?sum: product\n"
     "    | sum \"+\" product   -> add\n"
     "    | sum \"-\" product   -> sub\n"
     "?product: atom\n"
     "    | product \"*\" atom  -> mul // as in school\n"
     "?atom: NUMBER           -> number\n"
     "     | \"-\" atom         -> neg\n"
     "     | NAME             -> var\n"
     "     | \"(\" sum \")\"\n"
     "%import common.CNAME -> NAME\n"
     "%import common.NUMBER\n"
     "%import common.WS_INLINE\n"
     "%ignore WS_INLINE\n",
     {"1+2*3", " x = - ( 1.5 + y_2 ) ", "--1", "1e-3"},
     {"", "x=", "(1", "1 + "},
     {"=", "1 2", "x=y=", "+"}},
    {"terminals",
     RN_FRONT_EBNF,
     "start: KEY~2 (\",\" PAIR){1,2} [\"!\"] RANGE*\n"
     "KEY.2: \"set\"i | /[#-%]{2}/\n"
     "PAIR: \"<\" _INNER \">\"\n"
     "_INNER: /a+/i \"/\" /\\/./s\n"
     "RANGE: \"0\"..\"3\"",
     {"setSET,<aA//x>", "#$sEt,<a//\n>,<a//b>!0123"},
     {"set", "$$$$", "setset,<a//x>,"},
     {"sett", "set#$,<b", "setset,<a//x>4", "setset,<a//x>!,"}},
    {"spaces before operators",
     RN_FRONT_EBNF,
     "start: \"a\" * \"b\" + B ? \"d\" ?\n"
     "?inlined: \"e\"\n"
     "_B: \"c\" +  // more than one\n"
     "B: _B ~ 1 | \"f\" {2}",
     {"b", "aab", "abbccd", "bffd"},
     {"", "a", "aa", "bf"},
     {"d", "ad", "bfd", "be", "bdd"}},
    {"escapes in EBNF",
     RN_FRONT_EBNF,
     "start: \"\\n\\t\\\\\\\"\\u00e9\" ESCAPED_STRING  # a remark\n"
     "%import common (ESCAPED_STRING, WS)",
     {"\n\t\\\"\xc3\xa9\"a\\\"b\"", "\n\t\\\"\xc3\xa9\"\""},
     {"\n\t", "\n\t\\\"\xc3\xa9\"\\"},
     {"n", "\n\t\\\"\xc3\xa9\"\n"}},
    {"comments in C",
     RN_FRONT_EBNF,
     "start: (C_COMMENT | CPP_COMMENT NEWLINE)+\n%import common.C_COMMENT\n%import common.CPP_COMMENT\n"
     "%import common.NEWLINE",
     {"/**/", "/* a * b / c **/", "// x\n", "/*/*/// x\r\n\n"},
     {"/", "/* *", "// x"},
     {"x", "/**/ x", "/* */ /"}},
    {"choices",
     RN_FRONT_CHOICES,
     "3\nyes2\nno6\nno\nyes0\n",
     {"yes", "no", "no\nyes", ""},
     {"y", "no\n"},
     {"x", "yesno", "noo"}},
};

/* llama.cpp's own grammars (tests/grammar/llama_grammars, MIT): the name is the file's. */
static const struct example files[] = {
    {"arithmetic",
     RN_FRONT_GBNF,
     NULL,
     {"1=2\n", "a +(b*12) = c\n", "x=1\ny=2\n", "( n-1 )/2 = k_9 \n"},
     {"", "(1+(2", "1=", "a_9", "1=2"},
     {"=", "1+=", "_a", "1 2", "a + b", ")"}},
    {"c",
     RN_FRONT_GBNF,
     NULL,
     {"", "int main(){return 0;}", "float f(int a){int b = a*2;while(b<10){b = b+( 1 );}return -b;}char g(){}",
      "int f(){for(i = 0; i<n; i = i+1){print (i, 2);}}", "int f(){if(a==b){}else{return x(1);}}",
      "int f(){// \xc3\xa9\n/* a*b **x */}"},
     {"int ", "int main(", "float x(){if(a", "int f(){/* **/"},
     {"void f", "int 9", "int main(){return 0}", "int f(){x=1", "int f(){if(a)", "int f(){// a\n\n"}},
    {"chess",
     RN_FRONT_GBNF,
     NULL,
     {"1. e4 e5\n2. Nf3 Nc6\n", "1. e4 d5\n2. exd5 Qxd5\n3. O-O O-O-O+\n", "1. a8=Q N1xf3#\n99. a1 a2\n"},
     {"1. e4 e5\n", "1. Nb", "1. O-O-O"},
     {"2. ", "1. e9", "1. i4", "1. e4 e5\n0", "1. O-O-O-"}},
    {"english",
     RN_FRONT_GBNF,
     NULL,
     {"a", "Hello, world!", "It\tis\n5 o'clock.", "~`|[\\]^_{}"},
     {"", "Hello "},
     {" a", "a  b", "\xc3\xa9", "caf\xc3\xa9", "a\r"}},
    {"japanese",
     RN_FRONT_GBNF,
     NULL,
     {"こんにちは", "日本語、 カタカナ。", "々", "ヿ\n一"},
     {"", "日本 ", "\xe6\x97", "日本\xe3"},
     {"a", " 日", "日  本", "日a", "日、\xc3"}},
    {"json",
     RN_FRONT_GBNF,
     NULL,
     {"{}", "{\"a\":1}", "{\"a\":[1,-2.5e+3,true,{\"b\":null}], \"\\u00e9\":\"\xc3\xa9\"}", "{ }\n  "},
     {"{", "{\"a\":-", "{\"a\":[[[", "{\"a\\u00"},
     {"[", "{a", "{\"a\":01", "{\"a\":tru3", "{\"\n", "{} x", "{\"a\\x"}},
    {"json_arr",
     RN_FRONT_GBNF,
     NULL,
     {"[\n]", "[\n1]", "[\n1,\n{\"a\": [true,null]}]", "[\n \"\\u00e9\",\n\n\t-2.5e9 ]"},
     {"[", "[\n1,", "[\n[[", "[\n1,\n"},
     {"[]", "[1", "[\n1,2", "[\n1]\n", "{"}},
    {"list",
     RN_FRONT_GBNF,
     NULL,
     {"- a\n", "- a\n- \xe2\x82\xac b\n", "- - \n"},
     {"", "- ", "- a\n-"},
     {"-a", "- a\r", "- a\xe2\x80\xa8", "- \xc2\x85", "- \n"}},
};

static void check_example(struct reading *r, const struct example *e, const char *grammar)
{
    int i;

    if (reading_open(r, e->kind, grammar, strlen(grammar)) != RUNNEL_OK)
        fail_msg("%s: %s", e->name, r->error.message);
    for (i = 0; e->whole[i] != NULL; i++)
        if (!reading_whole(r, e->whole[i], strlen(e->whole[i])))
            fail_msg("%s does not allow \"%s\"", e->name, e->whole[i]);
    for (i = 0; e->begins[i] != NULL; i++) {
        if (!reading_begins(r, e->begins[i], strlen(e->begins[i])))
            fail_msg("%s does not allow a text that begins with \"%s\"", e->name, e->begins[i]);
        if (rn_matcher_can_end(r->matcher))
            fail_msg("%s allows \"%s\"", e->name, e->begins[i]);
    }
    for (i = 0; e->refused[i] != NULL; i++)
        if (reading_begins(r, e->refused[i], strlen(e->refused[i])))
            fail_msg("%s allows a text that begins with \"%s\"", e->name, e->refused[i]);
    reading_close(r);
}

static void test_examples(void **state)
{
    struct reading r;
    size_t i;

    (void)state;
    reading_init(&r);
    for (i = 0; i < COUNT(examples); i++)
        check_example(&r, &examples[i], examples[i].grammar);
    reading_fini(&r);
}

static void test_files(void **state)
{
    struct reading r;
    size_t i;

    (void)state;
    reading_init(&r);
    for (i = 0; i < COUNT(files); i++) {
        char path[100], text[8000] = "";
        FILE *file;
        size_t n;

        snprintf(path, sizeof path, "tests/grammar/llama_grammars/%s.gbnf", files[i].name);
        file = fopen(path, "rb");
        assert_non_null(file);
        n = fread(text, 1, sizeof text - 1, file);
        assert_true(fclose(file) == 0 && n > 50 && n < sizeof text - 1);
        check_example(&r, &files[i], text);
    }
    reading_fini(&r);
}

/* Tokens by number and by name, and any but one. */
static void test_tokens(void **state)
{
    static const char *const grammars[] = {"root ::= <think> thinking </think> .*\nthinking ::= !</think>*",
                                           "root ::= <[2]> (!<[3]>)* <[3]> .*"};
    struct reading r;
    uint64_t mask[5];
    size_t i;

    (void)state;
    reading_init(&r);
    for (i = 0; i < COUNT(grammars); i++) {
        if (reading_open(&r, RN_FRONT_GBNF, grammars[i], strlen(grammars[i])) != RUNNEL_OK)
            fail_msg("%s", r.error.message);
        assert_int_equal(rn_matcher_accept(r.matcher, WORD_DONE, NULL), RUNNEL_INVALID);
        assert_int_equal(rn_matcher_accept(r.matcher, WORD_BYTES + '<', NULL), RUNNEL_INVALID);
        assert_int_equal(rn_matcher_accept(r.matcher, WORD_THINK, NULL), RUNNEL_OK);
        assert_int_equal(rn_matcher_mask(r.matcher, mask, NULL), RUNNEL_OK);
        assert_true((mask[0] & 15) == 1 << WORD_DONE); /* and no other control token */
        assert_int_equal(rn_matcher_accept(r.matcher, WORD_BYTES + 0xff, NULL), RUNNEL_OK); /* any text token */
        assert_int_equal(rn_matcher_accept(r.matcher, WORD_END, NULL), RUNNEL_INVALID);
        assert_int_equal(rn_matcher_accept(r.matcher, WORD_DONE, NULL), RUNNEL_OK);
        assert_int_equal(rn_matcher_accept(r.matcher, WORD_BYTES + 0xff, NULL), RUNNEL_INVALID);
        assert_int_equal(rn_matcher_accept(r.matcher, WORD_THINK, NULL), RUNNEL_INVALID);
        assert_int_equal(rn_matcher_accept(r.matcher, WORD_END, NULL), RUNNEL_OK);
        reading_close(&r);
    }
    reading_fini(&r);
}

/* ---- Errors ---- */

static void test_errors(void **state)
{
    static const struct {
        enum rn_front kind;
        const char *text, *sentence;
    } cases[] = {
        {RN_FRONT_GBNF, "", "line 1, column 1: the grammar has no rules"},
        {RN_FRONT_GBNF, "a ::= \"b\"", "line 1, column 1: the rule \"root\" is not defined"},
        {RN_FRONT_GBNF, "root ::= \"b\"\n  x y\n", "line 2, column 5: \"::=\" is expected"},
        {RN_FRONT_GBNF, "root ::= (\"b\"", "line 1, column 14: \")\" is expected"},
        {RN_FRONT_GBNF, "root ::= \"b", "line 1, column 12: a literal has no quote behind it"},
        {RN_FRONT_GBNF, "root ::= [b", "line 1, column 12: a class of characters has no \"]\" behind it"},
        {RN_FRONT_GBNF, "root ::= [z-a]",
         "line 1, column 11: a range of characters ends before it begins, or beyond U+10FFFF"},
        {RN_FRONT_GBNF, "root ::= \"\\q\"", "line 1, column 12: an escape that is not known"},
        {RN_FRONT_GBNF, "root ::= \"\\xg\"", "line 1, column 13: 2 hexadecimal digits are expected"},
        {RN_FRONT_GBNF, "root ::= \"\\ud800\"", "line 1, column 17: U+D800 is not a character"},
        {RN_FRONT_GBNF, "root ::= \"\\U00110000\"", "line 1, column 21: U+110000 is not a character"},
        {RN_FRONT_GBNF, "root ::= \"a\"{2", "line 1, column 15: \"}\" is expected"},
        {RN_FRONT_GBNF, "root ::= \"a\"{x}", "line 1, column 14: a number is expected"},
        {RN_FRONT_GBNF, "root ::= \"a\" = \"b\"", "line 1, column 14: the end of the line is expected"},
        {RN_FRONT_GBNF, "root ::= \"a\"\nroot ::= \"b\"", "line 2, column 13: the rule \"root\" is defined twice"},
        {RN_FRONT_GBNF, "root ::= other", "line 1, column 10: the rule \"other\" is not defined"},
        {RN_FRONT_GBNF, "root ::= <nothing>", "line 1, column 10: the vocabulary has no token \"<nothing>\""},
        {RN_FRONT_GBNF, "root ::= <[999]>", "line 1, column 10: the vocabulary has no token 999"},
        {RN_FRONT_GBNF, "root ::= <[x]>", "line 1, column 12: the number of a token is written <[17]>"},
        {RN_FRONT_GBNF, "root ::= <think", "line 1, column 10: the name of a token has no \">\" behind it"},
        {RN_FRONT_GBNF, "root ::= \"a\" root", "the grammar matches no text: none of its texts comes to an end"},
        {RN_FRONT_GBNF, "root ::= root \"a\"", "the grammar matches no text: none of its texts comes to an end"},
        {RN_FRONT_GBNF, "root ::= \"\xc0\x80\"", "the grammar is not UTF-8"},
        {RN_FRONT_EBNF, "", "line 1, column 1: the rule \"start\" is not defined"},
        {RN_FRONT_EBNF, "start: x", "line 1, column 8: the rule \"x\" is not defined"},
        {RN_FRONT_EBNF, "start: A\nA: x", "line 2, column 4: the terminal calls the rule \"x\""},
        {RN_FRONT_EBNF, "start: \"a\"..\"bc\"",
         "line 1, column 15: a range is written \"a\"..\"z\", with one character on either side"},
        {RN_FRONT_EBNF, "start: /a", "line 1, column 9: a regular expression has no \"/\" behind it"},
        {RN_FRONT_EBNF, "start: /a/x", "line 1, column 11: the flag x of a regular expression is not supported"},
        {RN_FRONT_EBNF, "start: \"x\" /a(?=b)/", "line 1, column 16: lookahead is not supported"},
        {RN_FRONT_EBNF, "start: \"a\"~", "line 1, column 12: a number of repetitions is expected, as ~2..4 or {2,4}"},
        {RN_FRONT_EBNF, "start: \"a\" ?b", "line 1, column 12: the end of the line is expected"},
        {RN_FRONT_EBNF, "start: list{\"a\"}", "line 1, column 12: templates are not supported"},
        {RN_FRONT_EBNF, "%import foo.BAR",
         "line 1, column 9: only terminals of the library \"common\" can be imported"},
        {RN_FRONT_EBNF, "%import common.BAR", "line 1, column 16: the library has no terminal \"BAR\""},
        {RN_FRONT_EBNF, "%declare X", "line 1, column 1: of the lines with % only %ignore and %import are supported"},
        {RN_FRONT_EBNF, "start: \"a\" -> 1", "line 1, column 15: a name is expected behind \"->\""},
        {RN_FRONT_CHOICES, "", "line 1, column 1: there is nothing to choose from"},
        {RN_FRONT_CHOICES, "9\nabc", "line 2, column 1: a choice has a line of its length in bytes before it"},
    };
    struct reading r;
    size_t i;

    (void)state;
    reading_init(&r);
    for (i = 0; i < COUNT(cases); i++) {
        runnel_status status = reading_open(&r, cases[i].kind, cases[i].text, strlen(cases[i].text));

        assert_true(status == RUNNEL_FORMAT || status == RUNNEL_UNSUPPORTED);
        if (strcmp(r.error.message, cases[i].sentence) != 0)
            fail_msg("\"%s\": \"%s\", not \"%s\"", cases[i].text, r.error.message, cases[i].sentence);
    }
    reading_fini(&r);
}

/* ---- Harm ---- */

struct harm {
    char *text;
    size_t n, capacity;
};

static void add(struct harm *h, size_t times, const char *format, ...)
{
    char piece[200];
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    if (h->n + times * (size_t)n >= h->capacity) { /* twice as much: AddressSanitizer copies at each call */
        h->capacity = 2 * (h->n + times * (size_t)n) + 1;
        h->text = realloc(h->text, h->capacity);
    }
    for (; times > 0; times--, h->n += (size_t)n)
        memcpy(h->text + h->n, piece, (size_t)n);
    h->text[h->n] = '\0';
}

/* The steps of making an automaton are counted, not timed; the default limit of them is what bounds the time. */
static void check_harm(struct reading *r, enum rn_front kind, struct harm *h, const char *sentence)
{
    runnel_status status = reading_open(r, kind, h->text, h->n);

    if ((status == RUNNEL_OK) != (sentence == NULL) || (sentence != NULL && strstr(r->error.message, sentence) == NULL))
        fail_msg("%.60s...: %s", h->text, r->error.message);
    if (status == RUNNEL_OK) {
        reading_begins(r, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 44);
        reading_close(r);
    }
    h->n = 0;
}

static void test_harm(void **state)
{
    static const char *const states = "states";
    struct harm h = {NULL, 0, 0};
    struct reading r;
    int i;

    (void)state;
    reading_init(&r);
    add(&h, 1, "root ::= ( [x]* )*");
    check_harm(&r, RN_FRONT_GBNF, &h, NULL);
    add(&h, 1, "root ::= (([^x]*){0,99}){0,99}");
    check_harm(&r, RN_FRONT_GBNF, &h, NULL);
    add(&h, 1, "root ::= ((((((\"a\"{0,99}){0,99}){0,99}){0,99}){0,99}){0,99}) \"b\"");
    check_harm(&r, RN_FRONT_GBNF, &h, states);
    add(&h, 1, "root ::= ");
    add(&h, 60000, "(");
    add(&h, 1, "\"a\"");
    add(&h, 60000, ")");
    check_harm(&r, RN_FRONT_GBNF, &h, "nested deeper than 256");
    add(&h, 1, "start: ");
    add(&h, 30000, "[");
    check_harm(&r, RN_FRONT_EBNF, &h, "nested deeper than 256");
    add(&h, 1, "root ::= r1\n");
    for (i = 1; i < 5000; i++)
        add(&h, 1, "r%d ::= r%d\n", i, i + 1);
    add(&h, 1, "r5000 ::= \"a\"*\n");
    check_harm(&r, RN_FRONT_GBNF, &h, NULL);
    add(&h, 1, "root ::= r1\n");
    for (i = 1; i < 5000; i++)
        add(&h, 1, "r%d ::= r%d \"a\" | \"b\" r%d\n", i, i + 1, i % 2 + 1);
    add(&h, 1, "r5000 ::= \"a\"*\n");
    check_harm(&r, RN_FRONT_GBNF, &h, "calls rules in rules deeper than 1000");
    add(&h, 1, "root ::= r0 \"x\"\n"); /* each calls all first: left recursion through all */
    for (i = 0; i < 200; i++)
        add(&h, 1, "r%d ::= r%d \"a\" | r%d \"b\" | r%d \"c\" | \"d\"\n", i, (i * 7 + 1) % 200, (i * 11 + 5) % 200,
            (i * 13 + 3) % 200);
    check_harm(&r, RN_FRONT_GBNF, &h, "more than");
    add(&h, 1, "root ::= root root | root root root | \"a\" | \"\"");
    check_harm(&r, RN_FRONT_GBNF, &h, NULL);
    add(&h, 1, "root ::= a\na ::= b | \"\"\nb ::= a a | c\nc ::= b? a?");
    check_harm(&r, RN_FRONT_GBNF, &h, NULL);
    add(&h, 1, "root ::= [");
    for (i = 0; i < 20000; i++)
        add(&h, 1, "\\U%08X", 0x10000 + i * 3);
    add(&h, 1, "]{0,100}");
    check_harm(&r, RN_FRONT_GBNF, &h, "more than");
    add(&h, 1, "root ::= ");
    add(&h, 100000, "\"a\" ");
    check_harm(&r, RN_FRONT_GBNF, &h, NULL);
    free(h.text);
    reading_fini(&r);
}

static void test_harm_regex(void **state)
{
    static const char *const states = "states";
    struct harm h = {NULL, 0, 0};
    struct reading r;
    int i;

    (void)state;
    reading_init(&r);
    add(&h, 30000, "(");
    check_harm(&r, RN_FRONT_REGEX, &h, "nested deeper than 256");
    add(&h, 3000000, "a");
    check_harm(&r, RN_FRONT_REGEX, &h, "has 3000000 bytes, where 2097152 are the most");
    add(&h, 1, "(a+)+$");
    check_harm(&r, RN_FRONT_REGEX, &h, NULL);
    add(&h, 1, "(a|a)*b");
    check_harm(&r, RN_FRONT_REGEX, &h, NULL);
    add(&h, 1, "a{1,100000}");
    check_harm(&r, RN_FRONT_REGEX, &h, NULL);
    add(&h, 1, "(a{0,1000}b{0,1000}c{0,1000}){0,1000}");
    check_harm(&r, RN_FRONT_REGEX, &h, states);
    add(&h, 1, "(.*a){20}.*(a|b){30}(.*b){20}");
    check_harm(&r, RN_FRONT_REGEX, &h, NULL);
    add(&h, 2000, "(?:a?){50}");
    add(&h, 2000, "a");
    check_harm(&r, RN_FRONT_REGEX, &h, "more than");
    add(&h, 20000, "\\p{L}");
    check_harm(&r, RN_FRONT_REGEX, &h, "more than");
    for (i = 0; i < 100000; i++)
        add(&h, 1, "%d\n%0*d", 5 + i % 7, 5 + i % 7, i % 100000);
    check_harm(&r, RN_FRONT_CHOICES, &h, states);
    for (i = 0; i < 10000; i++)
        add(&h, 1, "%d\n%0*d", 5 + i % 7, 5 + i % 7, i);
    check_harm(&r, RN_FRONT_CHOICES, &h, NULL);
    free(h.text);
    reading_fini(&r);
}

/* Refused memory at each point, in each front end. */
static void test_memory(void **state)
{
    struct refusing refusing = {0};
    struct rn_heap heap = refusing_heap(&refusing);
    struct reading r;
    size_t i;

    (void)state;
    reading_init(&r);
    for (i = 0; i < COUNT(examples); i++) {
        uint64_t n, calls = UINT64_MAX;

        for (n = 0; n <= calls; n++) { /* 0: none is refused, and they are counted */
            struct rn_automaton *a = NULL;
            struct rn_grammar *g;
            runnel_status status;

            refusing.calls = 0;
            refusing.refuse_at = n;
            status = rn_front_read(&heap, examples[i].kind, examples[i].grammar, strlen(examples[i].grammar), r.vocab,
                                   NULL, &g, NULL);
            if (status == RUNNEL_OK)
                status = rn_automaton_new(&heap, g, &a, NULL);
            calls = n == 0 ? (uint64_t)refusing.calls : calls;
            assert_int_equal(status, n == 0 ? RUNNEL_OK : RUNNEL_NO_MEMORY);
            rn_automaton_free(a);
            rn_grammar_free(g);
            assert_int_equal(refusing.live, 0);
        }
    }
    reading_fini(&r);
}

static void test_choices_text(void **state)
{
    const char *const choices[] = {"yes", "no\n", ""};
    const size_t bytes[] = {3, 3, 0};
    struct rn_heap heap;
    struct reading r;
    size_t n;
    char *text;

    (void)state;
    rn_heap_init(&heap, NULL);
    reading_init(&r);
    assert_true(rn_choices_text(&heap, choices, bytes, 3, &text, &n));
    assert_int_equal(n, strlen("3\nyes3\nno\n0\n"));
    assert_memory_equal(text, "3\nyes3\nno\n0\n", n);
    assert_int_equal(reading_open(&r, RN_FRONT_CHOICES, text, n), RUNNEL_OK);
    assert_true(reading_whole(&r, "yes", 3) && reading_whole(&r, "no\n", 3) && reading_whole(&r, "", 0));
    reading_close(&r);
    rn_free(&heap, text);
    reading_fini(&r);
}

/* ---- Interrupted ---- */

struct asked {
    uint32_t n, end_at; /* 0: never */
};

static bool ask(const void *user)
{
    struct asked *asked = (struct asked *)user;

    asked->n++;
    return asked->end_at > 0 && asked->n >= asked->end_at;
}

/* A grammar that takes long is asked about often, the first time at once, and ends when it is told to, with nothing
 * held. */
static void test_interrupted(void **state)
{
    static const char regex[] = "(a|b)*a(a|b){200}x"; /* deterministic it has 2^200 states */
    struct reading r;

    (void)state;
    reading_init(&r);
    for (uint32_t end_at = 0; end_at < 5; end_at++) {
        struct asked asked = {.end_at = end_at};
        const struct rn_interrupt interrupt = {ask, &asked};
        struct rn_grammar *grammar;

        assert_int_equal(rn_front_read(&r.heap, RN_FRONT_REGEX, regex, sizeof regex - 1, r.vocab, NULL, &grammar, NULL),
                         RUNNEL_OK);
        grammar->stop = &interrupt;
        memset(&r.error, 0, sizeof r.error);
        assert_int_equal(reading_open_grammar(&r, grammar), end_at == 0 ? RUNNEL_INVALID : RUNNEL_CANCELLED);
        assert_true(end_at == 0 ? asked.n >= 10 && asked.n < 10000 : asked.n == end_at);
    }
    reading_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples), cmocka_unit_test(test_files),        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_errors),   cmocka_unit_test(test_harm),         cmocka_unit_test(test_harm_regex),
        cmocka_unit_test(test_memory),   cmocka_unit_test(test_choices_text), cmocka_unit_test(test_interrupted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
