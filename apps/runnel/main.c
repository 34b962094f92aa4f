/* runnel: the program. One table of commands; each takes a model, options from options.c, and ends
 * with one of four exit codes (common.h). */
#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "common.h"

static const struct app_command commands[] = {
    {"run", APP_RUN, 1, 2, "MODEL [TEXT | -p TEXT | -f FILE]", "continue a text",
     "Streams the answer to standard output as it comes, byte for byte and without the prompt; speeds\n"
     "follow on standard error. The same\n"
     "model, text, options and seed give the same answer every time.\n\n"
     "Ctrl-C stops: what has come is printed, the exit code is 130. A second one ends at once.\n\n"
     "With --json each line is an object: {\"type\":\"token\",\"id\":..,\"text\":..}, {\"type\":\"progress\",\n"
     "\"done\":..,\"total\":..}, and at the end one of type done (\"finish\" is stop or length), cancelled or\n"
     "failed, with usage in tokens and timings in microseconds. Behind a full context (--context-keep) a token\n"
     "has \"shifts\", how often it was full by then. With --best-of the last line is {\"type\":\"best\",\"answers\":\n"
     "[2,0]}: the numbers of those that count, best first.\n",
     "  runnel run model.gguf \"Once upon a time\" -n 100\n"
     "  runnel run model.gguf -f letter.txt --temperature 0.8 --top-p 0.95 --seed 7\n"
     "  runnel run base.gguf \"Once upon a time\" --lora tales.gguf:0.5\n"
     "  echo -n \"1, 2, 3,\" | runnel run model.gguf -f - --stop 10 --json\n",
     app_run},
    {"chat", APP_CHAT, 1, 1, "MODEL [--system TEXT]", "talk with a model",
     "Reads lines, streams answers. Ctrl-C stops the answer (or drops the line that is being typed) and not\n"
     "the program, Ctrl-D or /exit leaves, /clear begins anew, /help lists this. Where standard input is\n"
     "no terminal, each of its lines is a turn, as if it were typed. Turns follow the model's chat template,\n"
     "or are plain User:/Assistant: where it has none; what you type never becomes a control token.\n\n"
     "Answers are drawn as the model's file recommends, else at temperature 0.7 with top-p 0.95 and min-p\n"
     "0.05; --temperature 0 takes the likeliest token always. A paste is one message. docs/CHAT.md tells more.\n\n"
     "With --tools the model may call them: a call is shown, and the next line is its result. What it\n"
     "thinks aloud is shown dimly, on a terminal only. With --json each event is an object on a line:\n"
     "those of run, and types reasoning, tool_call, tool_id, tool_arguments and tool_end.\n\n"
     "With --session the conversation and what the model has computed of it are kept in a file and read again\n"
     "the next time; nothing is computed twice. /save FILE and /load FILE do so in between, /fork sets a copy\n"
     "aside, /back returns to it. A file that is damaged or of another model is refused, and left alone.\n"
     "\n"
     "A message that does not fit in the context is kept and not sent: /drop, /clear or --ctx make room. With\n"
     "--context-keep 0 the dialogue goes on by itself: the oldest turns are forgotten, but for the system\n"
     "message, and an answer goes on behind a full context, without its oldest part.\n",
     "  runnel chat model.gguf --tools tools.json --variables '{\"enable_thinking\": false}'\n"
     "  runnel chat model.gguf --system \"Answer in one sentence.\" --temperature 0.7\n"
     "  runnel chat model.gguf --session talk.session\n"
     "  printf 'Hello\\nAnd now?\\n' | runnel chat model.gguf -n 50\n",
     app_chat},
    {"serve", APP_SERVE, 1, APP_MAX_OPERANDS, "[NAME=]MODEL ... [--port N]", "answer requests over HTTP",
     "Speaks as OpenAI's server does: /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/rerank, "
     "/v1/responses\n"
     "and /v1/models, at once or as streams of events; and /tokenize, /detokenize, /apply-template, /metrics, /health\n"
     "and /ready. A model is called by its file's name without .gguf, or by NAME. docs/SERVER.md tells more.\n\n"
     "Whoever leaves early ends what it has asked for. SIGTERM and Ctrl-C let what runs come to its end, for\n"
     "--drain seconds at most; a second one ends at once.\n\n"
     "Each option can also be a variable of the environment: --max-streams is RUNNEL_MAX_STREAMS. One without a value\n"
     "takes 1, true, yes or on, or else 0, false, no or off.\n",
     "  runnel serve model.gguf\n"
     "  runnel serve base.gguf --lora legal=l.gguf --lora chat.gguf:0.5\n"
     "  runnel serve small=a.gguf large=b.gguf --host 0.0.0.0 --api-key-file keys.txt\n"
     "  curl localhost:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'\n",
     app_serve},
    {"doctor", APP_DOCTOR, 0, 1, "[MODEL]", "what this machine will do, and what it lacks",
     "Measures the machine, about a second: the instruction set, how fast memory is read. With a model: what it\n"
     "needs of memory at this context, how fast it could be at most, whether it loads, and in which order its\n"
     "weights lie then. Tells what is missing; the exit code is 1 then.\n",
     "  runnel doctor\n"
     "  runnel doctor model.gguf --ctx 32768 --kv-type q8\n",
     app_doctor},
    {"repack", APP_REPACK, 1, 1, "MODEL --weights-dir DIR", "weights in the order of reading, kept in a file",
     "Lays the weights out as the CPU reads them and keeps them in a file of DIR. Commands with the same\n"
     "--weights-dir map it, so that starting costs them nothing, and processes share the memory. A run with\n"
     "--weights-dir writes the file itself where it is missing and that order turns out faster.\n",
     "  runnel repack model.gguf --weights-dir ~/.cache/runnel\n"
     "  runnel run model.gguf -p Hello --weights-dir ~/.cache/runnel\n",
     app_repack},
    {"info", APP_INFO, 0, 1, "MODEL | --architectures | --devices", "what a file holds and what memory it needs",
     "Reads the head of a GGUF file; nothing is loaded. Arrays are shown by their first elements.\n"
     "With --devices, without MODEL: the instruction sets of this machine, what is known of its GPUs, and why\n"
     "auto would take the CPU.\n",
     "  runnel info model.gguf --ctx 4096 --kv-type f16\n"
     "  runnel info model.gguf --plan\n"
     "  runnel info model.gguf --json | python3 -m json.tool\n",
     app_info},
    {"tokenize", APP_TOKENIZE, 1, 1, "MODEL (-p TEXT | -f FILE | --tokens 1,2,3)", "a text's tokens, and back",
     "One token per line: its id, a tab, its text with \\n, \\t, \\r, \\\\ and \\xNN escaped. Only the\n"
     "vocabulary is loaded. With --show the text itself, each token in brackets or, on a terminal, on a\n"
     "ground of its own. Of --tokens the text, control tokens by their names.\n",
     "  runnel tokenize model.gguf -p \"Hello world\"\n"
     "  runnel tokenize model.gguf -f text.txt --ids\n"
     "  runnel tokenize model.gguf --tokens 1,15043,3186\n",
     app_tokens},
    {"logits", APP_LOGITS, 1, 1, "MODEL (-p TEXT | --tokens 1,2,3) -o FILE", "logits of every position, to a file",
     "Writes u32 n_tokens, u32 n_vocab, i32 tokens[n_tokens], f32 logits[n_tokens][n_vocab], all little\n"
     "endian. A text gets BOS where the model wants it, ids are taken as they are.\n",
     "  runnel logits model.gguf -p \"Once upon a time\" -o out.logits\n", app_logits},
    {"embed", APP_EMBED, 1, APP_MAX_OPERANDS, "MODEL [TEXT ...] [-f FILE]", "texts as vectors",
     "Prints a line for each text: the numbers of its embedding, the model's last hidden states pooled over the\n"
     "text and scaled to length 1. A text gets BOS where the model wants it. With --json one object in the form\n"
     "of OpenAI's /v1/embeddings; where a text fails, or Ctrl-C stops it, that ends with an \"error\" and its\n"
     "\"message\".\n",
     "  runnel embed model.gguf \"A cat sat on a mat.\" \"Snow fell all night.\"\n"
     "  runnel embed model.gguf -f lines.txt --pooling last --dimensions 256 --json\n",
     app_embed},
    {"score", APP_SCORE, 1, APP_MAX_OPERANDS, "MODEL [--query TEXT] [TEXT ...] [-f FILE]", "how well texts answer",
     "Prints a line for each text: the scores that a model with a head gives it, a reranker's for the query, or a\n"
     "classifier's. With --json one object in the form of /v1/rerank, the best text first, or of /v1/classify; where\n"
     "a text fails, or Ctrl-C stops it, the object is an \"error\" with its \"message\".\n",
     "  runnel score reranker.gguf --query \"Who lives in the woods?\" \"A fox does.\" \"Snow fell all night.\"\n"
     "  runnel score classifier.gguf -f lines.txt --json\n",
     app_score},
    {"perplexity", APP_PERPLEXITY, 2, 2, "MODEL FILE", "how well a model foretells a text",
     "Cuts the text's tokens into windows that do not overlap, each one less than the context with BOS\n"
     "in front where the model wants it, and scores every position after a window's first. Prints the\n"
     "number of scored tokens, the mean negative log-likelihood in nats, and its exponential, each with\n"
     "its standard error. (Other programs score only the second half of each window: their numbers are\n"
     "lower.) FILE - is standard input.\n",
     "  runnel perplexity model.gguf wiki.txt --ctx 512\n", app_perplexity},
    {"template", APP_TEMPLATE, 0, 1, "[MODEL | --file T.jinja] --context FILE.json", "the text of a chat template",
     "Renders the model's chat template, or one from a file, with the members of a JSON object as its\n"
     "variables, and prints the text as it is. A model also gives bos_token and eos_token.\n",
     "  runnel template model.gguf --context chat.json\n"
     "  echo '{\"messages\": []}' | runnel template --file t.jinja --context -\n",
     app_template},
    {"batch", APP_BATCH, 3, 3, "MODEL IN.jsonl OUT.jsonl | MODEL IN.jsonl --check",
     "answers to a file of requests, in OpenAI's batch format",
     "Each line of IN is {\"custom_id\":..,\"method\":\"POST\",\"url\":..,\"body\":{..}} with a body for\n"
     "/v1/chat/completions, /v1/responses, /v1/completions, /v1/embeddings, /v1/rerank or /v1/classify; each gets\n"
     "a line in OUT, in the same order. What is wrong with a line becomes its error object, in OUT or in the file of\n"
     "--errors, and the job goes on; it ends with exit code 0, unless --fail-on says otherwise, and tells how many\n"
     "there were.\n\n"
     "With --check the lines are judged and nothing is computed: a line on standard output for each bad one.\n\n"
     "A journal beside OUT keeps what is done. Stopped by Ctrl-C, a kill, a full disk or a lost machine, the same\n"
     "command with --resume goes on and ends with the same bytes as if nothing had been. docs/BATCH.md has it all.\n",
     "  runnel batch model.gguf requests.jsonl answers.jsonl\n"
     "  runnel batch model.gguf requests.jsonl answers.jsonl --resume\n"
     "  runnel batch model.gguf requests.jsonl answers.jsonl --unordered --streams 64\n"
     "  runnel batch model.gguf requests.jsonl --check && echo fine\n",
     app_batch},
    {"eagle-train", APP_EAGLE, 2, 2, "MODEL CORPUS -o HEAD.gguf", "train a head that drafts for a model",
     "Learns from a text of the kind that will be generated, best one that the model wrote itself. Ctrl-C stops,\n"
     "and so may a kill: HEAD.gguf.training keeps how far it is, and the same command with --resume goes on and\n"
     "ends with the same bytes. Prints the last step's loss (nats) and how often the first draft was the\n"
     "model's likeliest token. docs/EAGLE.md has it all.\n",
     "  runnel eagle-train model.gguf corpus.txt -o head.gguf\n"
     "  runnel eagle-train model.gguf corpus.txt -o head.gguf --steps 2000 --lr 0.0005 --layers 2,12,21\n",
     app_eagle_train},
    {"cache", APP_CACHE, 1, 3, "ls|verify|purge DIR | warm MODEL PROMPTS",
     "what models keep of prompts they have computed",
     "ls      what each fingerprint (a model with its KV format) has there; with --fingerprint its records\n"
     "verify  reads everything and compares it with its checksums; exit code 1 if something is damaged\n"
     "purge   takes away --all, or what else the options say; refused while an engine writes there\n\n"
     "No model is loaded. What is damaged is never used and need not be purged. docs/TIERS.md has the format.\n\n"
     "warm    computes the prompts of a file (- is standard input), one on a line or in {\"prompt\":..}, so that\n"
     "        --cache-dir or --cache-shared have them; the options of the model are those of its later runs\n",
     "  runnel cache ls ~/.cache/runnel\n"
     "  runnel cache verify ~/.cache/runnel --json\n"
     "  runnel cache purge ~/.cache/runnel --fingerprint 1f0c --keep 2G\n"
     "  runnel cache purge ~/.cache/runnel --salt 17\n"
     "  runnel cache warm model.gguf prompts.txt --cache-dir ~/.cache/runnel\n",
     app_cache},
    {"bench", APP_BENCH, 1, APP_MAX_OPERANDS, "MODEL [MODEL ...]", "how fast models run, and how fast they could",
     "Times prefill (a prompt's positions per second, from its admission to its first token) and decode (tokens\n"
     "per second of all streams together, from each one's first token on) at every length, number of streams and\n"
     "depth given; end-of-text is ignored. Prompts are random tokens, never the same twice. Then measures the\n"
     "machine: what a token needs of its memory bandwidth or arithmetic is the limit that speeds are held against.\n\n"
     "Rows of --csv, objects of --json (bench/plot draws the former); speeds are medians with their range:\n"
     "  program, model, architecture, format   runnel; the file's name; its metadata; the type with most bytes\n"
     "  test                                   prefill or decode\n"
     "  prompt_tokens, gen_tokens              the length of what is timed; the other one is 0\n"
     "  streams, depth                         as asked for\n"
     "  tokens_per_s, .._min, .._max           of all streams together\n"
     "  first_token_ms, .._min, .._max         of prefill: from submit to the first token's event\n"
     "  repeats, threads, batch_tokens, kv_type, chunk_mean, device, device_layers, device_experts\n"
     "  expert_hit_percent                     with --device-experts: of choices of experts, those that were there\n"
     "  draft                                  who guesses: --draft's value; ngram for --speculate alone\n"
     "  drafted, accepted                      guesses in all repeats of a decode test; those that were right\n"
     "  tokens_per_pass                        of a sequence's passes with guesses: 1 + accepted / such passes\n"
     "  rested, rest                           passes without guesses because it rested; why: WRONG (too few were\n"
     "                                         right), DEAR (rows cost too much), SLOW (the guessing model does),\n"
     "                                         MEMORY (no room for a stream), BROKEN (it has failed), NONE\n"
     "  drafting_percent                       share of the time in which a guessing model computes\n"
     "  overlap_percent                        of that, while the other model computes too; 0 in turn\n"
     "  bytes_per_token, ops_per_token         what must be read, and computed with weights (a multiply-add is 2)\n"
     "  bandwidth_percent, peak_percent        how much of the machine's reading and arithmetic that takes\n"
     "  limit_percent                          the greater of the two\n"
     "  load_s, peak_rss_bytes                 until the model is ready; the program's memory at most\n"
     "  file_bytes, weight_bytes, kv_bytes     the file, its tensors, the key-value cache set aside\n"
     "  tiled_bytes                            of the tensors what lies in memory in the order of reading, --weights\n"
     "  mapped_bytes                           of that what is mapped from a file of --weights-dir\n"
     "  read_bytes_per_s, integer_ops_per_s, float_ops_per_s, level, cpu   the machine, see runnel_engine_measure\n",
     "  runnel bench model.gguf\n"
     "  runnel bench a.gguf b.gguf -p 128,512 -n 64 --streams 1,16 --csv\n"
     "  runnel bench model.gguf -p 0 -n 64 --depth 0,8192 --json\n",
     app_bench},
};

#define N_COMMANDS (sizeof commands / sizeof commands[0])

static const char about[] =
    "The result goes to standard output, all else to standard error. Exit codes: 0 success; 1 the\n"
    "model, the machine or a file failed; 2 the command line is wrong; 3 lines of a batch were wrong\n"
    "(--fail-on); 130 cancelled, by Ctrl-C or because the reader of standard output has gone.\n"
    "On a terminal control characters of an answer are shown and not obeyed; a pipe gets them as they are.\n"
    "SIGUSR1 lists the streams that live now on standard error.\n";

static void help(FILE *to)
{
    fputs("runnel: token streams from language models (GGUF files)\n\n"
          "  runnel run model.gguf \"Once upon a time\" -n 100\n"
          "  runnel chat model.gguf\n"
          "  runnel doctor model.gguf\n\n"
          "usage: runnel COMMAND MODEL [OPTION ...]\n\n",
          to);
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(to, "  %-12s %s\n", commands[i].name, commands[i].summary);
    fprintf(to,
            "\n  runnel COMMAND --help    what it does, its options, examples\n"
            "  runnel --version\n"
            "  runnel --manual          all of it as a manual page: man -l <(runnel --manual)\n"
            "  runnel --completion      a script for bash: source <(runnel --completion)\n\n%s",
            about);
}

static void command_help(const struct app_command *command)
{
    printf("runnel %s: %s\n\n%s\nusage: runnel %s %s [OPTION ...]\n\n%s", command->name, command->summary,
           command->examples, command->name, command->usage, command->text);
    app_options_help(stdout, command->bit);
}

/* What is no command, for whoever comes from another program of this kind. */
static void complain_command(const char *name, const char *near)
{
    size_t n = strlen(name);

    if (name[0] == '-' && app_option_hint(name))
        return;
    if (name[0] == '-')
        app_error("'%.80s' comes behind a command: runnel run %.80s ..., runnel chat %.80s ...; see runnel --help",
                  name, name, name);
    else if (n > 5 && strcmp(name + n - 5, ".gguf") == 0)
        app_error("'%.80s' is a file: a command comes first, as in runnel run %.80s or runnel chat %.80s", name, name,
                  name);
    else if (near != NULL)
        app_error("'%.80s' is not a command; did you mean %s?", name, near);
    else
        app_error("'%.80s' is not a command; see runnel --help", name);
}

static const struct app_command *find_command(const char *name)
{
    const char *names[N_COMMANDS];
    const char *near = NULL;

    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
        names[i] = commands[i].name;
    }
    near = app_nearest(name, names, N_COMMANDS);
    complain_command(name, near);
    return NULL;
}

/* Of one command, or (name NULL) of all. */
static int manual(const char *name)
{
    const struct app_command *command = name != NULL ? find_command(name) : NULL;

    if (name == NULL)
        app_manual(stdout, commands, N_COMMANDS, about);
    else if (command != NULL)
        app_manual_command(stdout, command);
    else
        return APP_USAGE;
    return app_output_code();
}

static int act(const struct app_command *command, int argc, char **argv)
{
    static struct app_options options; /* large: a thousand biases */
    int code = APP_USAGE;

    app_options_default(&options);
    if (app_options_parse(&options, command->name, command->bit, command->least, command->most, argc, argv)) {
        if (options.help) {
            command_help(command);
            code = app_output_code();
        } else {
            code = app_files_apart(&options, command->bit) ? app_grammar_open(&options) : APP_USAGE;
            if (code == APP_OK)
                code = command->act(&options);
            code = app_worse(code, app_telemetry_code());
        }
    }
    app_options_fini(&options);
    return code;
}

/* A standard stream that is closed would be the next file that is opened: reading and writing it fails instead. */
static void guard_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            _exit(APP_FAILURE);
}

/* What the line editor takes keys for; numbers stay in the C locale. Texts are UTF-8, whatever the locale is. */
static void use_utf8(void)
{
    static const char *const others[] = {"C.UTF-8", "C.utf8", "en_US.UTF-8"};

    setlocale(LC_CTYPE, "");
    for (size_t i = 0; i < sizeof others / sizeof others[0] && strcmp(nl_langinfo(CODESET), "UTF-8") != 0; i++)
        setlocale(LC_CTYPE, others[i]);
}

int main(int argc, char **argv)
{
    const struct app_command *command = NULL;
    const char *word = argc > 1 ? argv[1] : "";

    guard_standard_streams();
    use_utf8();
    signal(SIGPIPE, SIG_IGN); /* a reader that goes away is an error of the next write */
    signal(SIGXFSZ, SIG_IGN); /* and so is a file that may not grow */
    if (argc < 2) {
        help(stderr);
        return APP_USAGE;
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0 || strcmp(word, "version") == 0) {
        printf("runnel %s\n", runnel_version());
        return app_output_code();
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || (strcmp(word, "help") == 0 && argc == 2)) {
        help(stdout);
        return app_output_code();
    }
    if (strcmp(word, "--manual") == 0)
        return manual(argv[2]);
    if (strcmp(word, "--completion") == 0) {
        app_completion(stdout, commands, N_COMMANDS);
        return app_output_code();
    }
    command = find_command(strcmp(word, "help") == 0 ? argv[2] : word);
    if (command == NULL)
        return APP_USAGE;
    if (strcmp(word, "help") == 0) {
        command_help(command);
        return app_output_code();
    }
    return act(command, argc - 2, argv + 2);
}
