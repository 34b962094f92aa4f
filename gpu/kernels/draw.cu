/* Drawing from logits, to the bit as sampling/pick.c does it: greedy, or top-k, top-p and min-p and the coin
 * (sampling/noise.h), with logprobs. A block has a row.
 *
 * A token's key is one number: its logit as an unsigned integer in the order of the numbers, above the complement of
 * the id. The greater key is the better token, ties included, and no two are equal. What top-k and top-p keep are all
 * keys from one on. That key is found by histograms: of how far tokens are below the best first, then of 11 bits of the
 * keys at a time. They are sums of integers, whose order does not count. Sums of doubles are taken in the order in
 * which the CPU takes them, by one thread each.
 *
 * Biases, penalties and what is barred change logits where they lie, and what they were is put back behind the draw:
 * logprobs are of those. With a mask, tokens that it does not allow have the logit -infinity, but for logprobs. Where
 * the mask is not there yet, the host draws the row: its logits go to the host's memory.
 *
 *   shared   histogram [2048] · list of keys [1024] · their weights [1024] · what warps tell each other [3][16] ·
 *            mask [n_vocab / 64] */
#include "gpu/kernels/wrap.cuh"

#define RN_EXACT DEVICE
#include "base/exact.h"
#include "gpu/kernels/draw_args.h"
#undef RN_EXACT

namespace
{

enum : uint32_t { DRAW_THREADS = 512, DRAW_WARPS = DRAW_THREADS / WARP };
enum : uint32_t { HISTOGRAM = 2048, DIGIT_BITS = 11, LIST = 1024 };
enum : uint32_t { LIST_AT = HISTOGRAM * 8, WEIGHTS_AT = LIST_AT + LIST * 8, WORDS_AT = WEIGHTS_AT + LIST * 8 };
enum : uint32_t { MASK_AT = WORDS_AT + 3 * DRAW_WARPS * 8 };
enum : uint32_t { NOISE_DOMAIN = 1 }; /* sampling/noise.h */

constexpr double NOISE_MOST = 22.9, LIGHT = 58.0; /* sampling/noise.h, sampling/levels/loops.h */
constexpr float DEPTH = 30.0f;                    /* in temperatures: below it quick weights are 0 */
constexpr float MOST = 0x1.fffffep127f;           /* of all finite floats */

struct drawn_row {
    global<float> logits;
    uint64_t begin;
    uint32_t n;
    shared<uint32_t> mask;
    bool is_masked, may_end;
    float best;
    double inverse;      /* of the temperature, ... */
    float quick_inverse; /* ... and within floats */
    float digit_scale;   /* from a depth to the first digit */

    DEVICE float raw(uint32_t i) const
    {
        return logits.get(begin + i);
    }
    DEVICE void put(uint32_t i, float logit) const
    {
        logits.put(begin + i, logit);
    }
    DEVICE float logit(uint32_t i) const
    {
        return is_masked && (mask.get(i / 32) >> (i % 32) & 1) == 0 ? -INFINITY : raw(i);
    }
    DEVICE double scaled(float logit) const
    {
        return ((double)logit - (double)best) * inverse;
    }
};

DEVICE uint64_t key_of(float logit, uint32_t id)
{
    uint32_t bits = bits_of(logit + 0.0f); /* no -0 */

    bits = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    return (uint64_t)bits << 32 | (uint32_t)~id;
}

DEVICE uint32_t id_of(uint64_t key)
{
    return ~(uint32_t)key;
}

DEVICE float logit_of(uint64_t key)
{
    uint32_t bits = (uint32_t)(key >> 32);

    return float_of((bits & 0x80000000u) != 0 ? bits & 0x7fffffffu : ~bits);
}

/* ---- Of a whole block, the same in each thread ---- */

DEVICE uint64_t sum_of_keys(uint64_t value, const shared<uint64_t> &words)
{
    uint64_t sum = 0;

    UNROLL
    for (uint32_t mask = 16; mask > 0; mask /= 2)
        value += shuffle_xor(value, mask);
    if (lane_of_warp() == 0)
        words.put(warp_of_block(), value);
    sync_block();
    for (uint32_t i = 0; i < DRAW_WARPS; i++)
        sum += words.get(i);
    sync_block();
    return sum;
}

DEVICE uint64_t most_of_keys(uint64_t value, const shared<uint64_t> &words)
{
    uint64_t most = 0;

    UNROLL
    for (uint32_t mask = 16; mask > 0; mask /= 2) {
        uint64_t other = shuffle_xor(value, mask);
        value = other > value ? other : value;
    }
    if (lane_of_warp() == 0)
        words.put(warp_of_block(), value);
    sync_block();
    for (uint32_t i = 0; i < DRAW_WARPS; i++)
        most = words.get(i) > most ? words.get(i) : most;
    sync_block();
    return most;
}

/* ---- Where a selection ends ---- */

/* What a token counts for: as one, or as its weight of top-p. */
DEVICE uint64_t count_of(const drawn_row &row, float logit, bool weighs)
{
    if (weighs)
        return rn_quick_weight((logit - row.best) * row.quick_inverse);
    return logit == -INFINITY ? 0 : 1;
}

/* The first digit falls with the logit: how far it is below the best. */
DEVICE uint32_t depth_of(const drawn_row &row, float logit)
{
    float depth = (row.best - logit) * row.digit_scale;

    return depth < (float)(HISTOGRAM - 1) ? (uint32_t)depth : HISTOGRAM - 1;
}

/* In the histogram the first place from the front up to which it sums to `enough`; what is in front of it is taken off
 * `enough`. HISTOGRAM: all of it is less. */
DEVICE uint32_t find_place(const shared<uint64_t> &histogram, const shared<uint64_t> &words, uint64_t *enough)
{
    uint32_t thread = thread_of_block(), lane = lane_of_warp(), first = thread * (HISTOGRAM / DRAW_THREADS), place;
    uint64_t own = 0, sum, before = 0;

    for (uint32_t i = 0; i < HISTOGRAM / DRAW_THREADS; i++)
        own += histogram.get(first + i);
    sum = own;
    UNROLL
    for (uint32_t far = 1; far < WARP; far *= 2) {
        uint64_t other = shuffle(sum, lane >= far ? lane - far : lane);
        sum += lane >= far ? other : 0;
    }
    if (lane == WARP - 1)
        words.put(warp_of_block(), sum);
    if (thread == 0)
        words.put(DRAW_WARPS, HISTOGRAM);
    sync_block();
    for (uint32_t i = 0; i < warp_of_block(); i++)
        before += words.get(i);
    before += sum - own;
    if (before < *enough && before + own >= *enough) {
        for (place = first; before + histogram.get(place) < *enough; place++)
            before += histogram.get(place);
        words.put(DRAW_WARPS, place);
        words.put(DRAW_WARPS + 1, before);
    }
    sync_block();
    place = (uint32_t)words.get(DRAW_WARPS);
    if (place < HISTOGRAM)
        *enough -= words.get(DRAW_WARPS + 1);
    sync_block();
    return place;
}

/* The key at which tokens from the best down, of those below `ceiling`, come to `enough`; 0: all are less. */
DEVICE uint64_t find_end(const drawn_row &row, bool weighs, uint64_t ceiling, uint64_t enough)
{
    shared<uint64_t> histogram(0, HISTOGRAM), words(WORDS_AT, 3 * DRAW_WARPS);
    uint32_t depth = HISTOGRAM, shift = 64, bits, place;
    uint64_t prefix = 0;

    do {
        bits = depth == HISTOGRAM || shift >= DIGIT_BITS ? DIGIT_BITS : shift;
        for (uint32_t i = thread_of_block(); i < HISTOGRAM; i += DRAW_THREADS)
            histogram.put(i, 0);
        sync_block();
        for (uint32_t i = thread_of_block(); i < row.n; i += DRAW_THREADS) {
            float logit = row.logit(i);
            uint32_t own = depth_of(row, logit);
            uint64_t key = key_of(logit, i), count;
            if (key >= ceiling || (depth < HISTOGRAM && (own != depth || (shift < 64 && key >> shift != prefix))))
                continue;
            count = count_of(row, logit, weighs);
            if (count == 0)
                continue;
            if (depth < HISTOGRAM)
                own = (1u << bits) - 1 - (uint32_t)(key >> (shift - bits) & ((1u << bits) - 1));
            histogram.add(own, count);
        }
        sync_block();
        place = find_place(histogram, words, &enough);
        if (place == HISTOGRAM)
            return 0;
        if (depth == HISTOGRAM) {
            depth = place;
            continue;
        }
        shift -= bits;
        prefix = prefix << bits | ((1u << bits) - 1 - place);
    } while (shift > 0);
    return prefix;
}

/* Keys [end, ceiling) of finite logits, at most LIST, in descending order at the front of the list. How many. */
DEVICE uint32_t sort_best(const drawn_row &row, uint64_t end, uint64_t ceiling)
{
    shared<uint64_t> list(LIST_AT, LIST), words(WORDS_AT, 3 * DRAW_WARPS);
    uint32_t thread = thread_of_block(), n;

    for (uint32_t i = thread; i < LIST; i += DRAW_THREADS)
        list.put(i, 0);
    if (thread == 0)
        words.put(0, 0);
    sync_block();
    for (uint32_t i = thread; i < row.n; i += DRAW_THREADS) {
        float logit = row.logit(i);
        uint64_t key = key_of(logit, i);
        if (logit != -INFINITY && key >= end && key < ceiling)
            list.put((uint32_t)words.add(0, 1), key);
    }
    sync_block();
    n = (uint32_t)words.get(0);
    for (uint32_t size = 2; size <= LIST; size *= 2)
        for (uint32_t half = size / 2; half > 0; half /= 2) {
            uint32_t i = thread / half * half * 2 + thread % half;
            uint64_t a = list.get(i), b = list.get(i + half);
            bool rises = (i & size) != 0; /* LIST is the last size, so the end falls */
            if (rises ? a > b : a < b) {
                list.put(i, b);
                list.put(i + half, a);
            }
            sync_block();
        }
    return n;
}

/* Goes down the order of the best `most` tokens while their weights sum to less than `enough`. Returns the sum, and in
 * *end the key of the last one. */
DEVICE double go_down(const drawn_row &row, uint32_t most, double enough, uint64_t *end)
{
    shared<uint64_t> list(LIST_AT, LIST), words(WORDS_AT, 3 * DRAW_WARPS);
    shared<double> weights(WEIGHTS_AT, LIST), sums(WORDS_AT + 2 * DRAW_WARPS * 8, DRAW_WARPS);
    uint64_t ceiling = UINT64_MAX;
    double sum = 0;
    uint32_t n = LIST, i;

    *end = 0;
    while (most > 0 && n == LIST && sum < enough) {
        uint32_t wanted = most < LIST ? most : LIST;
        n = sort_best(row, find_end(row, false, ceiling, wanted), ceiling);
        for (i = thread_of_block(); i < n; i += DRAW_THREADS) {
            double z = row.scaled(logit_of(list.get(i)));
            weights.put(i, z < -LIGHT ? 0 : rn_exact_exp(z));
        }
        sync_block();
        if (thread_of_block() == 0) {
            for (i = 0; i < n && sum < enough; i++)
                sum += weights.get(i);
            sums.put(0, sum);
            words.put(1, i == 0 ? *end : list.get(i - 1));
        }
        sync_block();
        sum = sums.get(0);
        *end = words.get(1);
        ceiling = n == 0 ? 0 : list.get(n - 1);
        if (n > 0 && weights.get(n - 1) == 0 && enough == (double)INFINITY)
            n = 0; /* what follows has no weight, and only the sum is asked for */
        sync_block();
        most -= wanted;
    }
    return sum;
}

/* The last key that top-k and top-p keep. */
DEVICE uint64_t cut_of(const drawn_row &row, const rn_draw_ask &ask)
{
    shared<uint64_t> words(WORDS_AT, 3 * DRAW_WARPS);
    bool top_k = ask.top_k > 0 && ask.top_k < row.n, top_p = ask.top_p < 1;
    double share = (double)ask.top_p, part;
    uint64_t total = 0, end;

    if (top_k && !top_p)
        return find_end(row, false, UINT64_MAX, ask.top_k);
    if (top_k) {
        go_down(row, ask.top_k, share * go_down(row, ask.top_k, (double)INFINITY, &end), &end);
        return end;
    }
    if (!top_p)
        return 0;
    for (uint32_t i = thread_of_block(); i < row.n; i += DRAW_THREADS)
        total += count_of(row, row.logit(i), true);
    total = sum_of_keys(total, words);
    part = ceil((double)total * share);
    return find_end(row, true, UINT64_MAX, part < 1 ? 1 : part >= (double)total ? total : (uint64_t)part);
}

/* ---- The coin ---- */

/* Words 4 group to 4 group + 3 of the noise: Philox4x32-10 (base/rng.h). */
DEVICE void noise_words(const rn_draw_ask &ask, uint32_t group, uint32_t word[4])
{
    uint32_t c0 = (uint32_t)ask.position, c1 = (uint32_t)(ask.position >> 32), c2 = group, c3 = NOISE_DOMAIN;
    uint32_t k0 = (uint32_t)ask.seed, k1 = (uint32_t)(ask.seed >> 32);

    UNROLL
    for (uint32_t i = 0; i < 10; i++) {
        uint64_t p0 = (uint64_t)c0 * 0xD2511F53u, p1 = (uint64_t)c2 * 0xCD9E8D57u;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    word[0] = c0;
    word[1] = c1;
    word[2] = c2;
    word[3] = c3;
}

DEVICE double noise_of(uint32_t word)
{
    return -rn_exact_log(-rn_exact_log((0x1p32 - (double)word - 0.5) * 0x1p-32));
}

/* The token of the greatest score among those from `cut` on whose z is at least `least`; of equal ones the lowest. */
DEVICE uint32_t toss(const drawn_row &row, const rn_draw_ask &ask, uint32_t likeliest, uint64_t cut, double least)
{
    shared<double> scores(WORDS_AT, DRAW_WARPS);
    shared<uint64_t> tokens(WORDS_AT + DRAW_WARPS * 8, DRAW_WARPS);
    uint32_t token = likeliest, word[4];
    double score;

    noise_words(ask, likeliest / 4, word);
    score = noise_of(word[likeliest % 4]);
    for (uint32_t group = thread_of_block(); group < (row.n + 3) / 4; group += DRAW_THREADS) {
        bool ready = false;
        for (uint32_t j = 0; j < 4 && group * 4 + j < row.n; j++) {
            uint32_t i = group * 4 + j;
            float logit = row.logit(i);
            double z = row.scaled(logit), own;
            if (logit == -INFINITY || z < least || z + NOISE_MOST < score || key_of(logit, i) < cut)
                continue;
            if (!ready)
                noise_words(ask, group, word);
            ready = true;
            own = z + noise_of(j == 0 ? word[0] : j == 1 ? word[1] : j == 2 ? word[2] : word[3]);
            if (own > score || (own == score && i < token)) {
                score = own;
                token = i;
            }
        }
    }
    UNROLL
    for (uint32_t mask = 16; mask > 0; mask /= 2) {
        double other = shuffle_xor(score, mask);
        uint32_t id = shuffle_xor(token, mask);
        if (other > score || (other == score && id < token)) {
            score = other;
            token = id;
        }
    }
    if (lane_of_warp() == 0) {
        scores.put(warp_of_block(), score);
        tokens.put(warp_of_block(), token);
    }
    sync_block();
    for (uint32_t w = 0; w < DRAW_WARPS; w++)
        if (scores.get(w) > score || (scores.get(w) == score && tokens.get(w) < token)) {
            score = scores.get(w);
            token = (uint32_t)tokens.get(w);
        }
    sync_block();
    return token;
}

/* ---- Masks ---- */

DEVICE uint32_t words_of_mask(uint32_t n_vocab)
{
    return (n_vocab + 63) / 64 * 2;
}

/* Brings the mask to shared memory. False, in all threads: it is not there yet. */
DEVICE bool take_mask(drawn_row &row, uint64_t address)
{
    shared<uint64_t> words(WORDS_AT, 3 * DRAW_WARPS);
    bool is_there;

    if (thread_of_block() == 0)
        words.put(0, word_of_host(address));
    sync_block();
    is_there = words.get(0) != 0;
    for (uint32_t i = thread_of_block(); is_there && i < words_of_mask(row.n); i += DRAW_THREADS)
        row.mask.put(i, bytes_at(address).get<uint32_t>(RN_DRAW_MASK_WORDS + i * 4));
    row.may_end = is_there && bytes_at(address).get<uint32_t>(RN_DRAW_MASK_ENDS) != 0;
    sync_block();
    return is_there;
}

DEVICE void give_logits(const drawn_row &row, uint64_t to)
{
    for (uint32_t i = thread_of_block(); i < row.n; i += DRAW_THREADS)
        global<float>(to, row.n).put(i, row.raw(i));
}

/* ---- Changes: sampling/adjust.c ---- */

struct drawn_changes {
    global<rn_draw_change> list;
    global<float> saved;
    uint64_t first, saved_first;
    uint32_t n_biases, n_counts, n_barred;
    uint32_t own; /* a token, or RN_DRAW_NONE */

    DEVICE bool are_there() const
    {
        return n_biases + n_counts + n_barred > 0 || own != RN_DRAW_NONE;
    }
    DEVICE uint32_t token(uint32_t i) const
    {
        return (uint32_t)list.get(first + i).token;
    }
    DEVICE uint32_t word(uint32_t i) const
    {
        return list.get(first + i).word;
    }
    DEVICE uint32_t n() const
    {
        return n_biases + n_counts + n_barred;
    }
    /* No bias before it is of its token. */
    DEVICE bool is_first(uint32_t i) const
    {
        uint32_t j = 0;

        while (j < i && token(j) != token(i))
            j++;
        return j == i;
    }
    DEVICE void set(const drawn_row &row, uint32_t i, uint32_t id, float logit) const
    {
        saved.put(saved_first + i, row.raw(id));
        row.put(id, logit);
    }
    DEVICE void put_back(const drawn_row &row, uint32_t i, uint32_t id) const
    {
        row.put(id, saved.get(saved_first + i));
    }
};

/* What is finite stays finite. */
DEVICE float narrow(double value)
{
    if (value == -(double)INFINITY)
        return -INFINITY;
    return value > (double)MOST ? MOST : value < -(double)MOST ? -MOST : (float)value;
}

DEVICE float penalised(const rn_draw_ask &ask, float logit, uint32_t count)
{
    double value = (double)logit;

    value = value > 0 ? value / (double)ask.repetition : value * (double)ask.repetition;
    return narrow(value - ((double)count * (double)ask.frequency + (double)ask.presence));
}

/* Biases of one token are added one by one, by one thread. */
DEVICE void add_biases(const drawn_row &row, const drawn_changes &changes)
{
    for (uint32_t i = thread_of_block(); i < changes.n_biases; i += DRAW_THREADS) {
        uint32_t token = changes.token(i);
        float logit;
        if (!changes.is_first(i))
            continue;
        logit = row.raw(token);
        for (uint32_t j = i; j < changes.n_biases; j++)
            if (changes.token(j) == token)
                logit = narrow((double)logit + (double)float_of(changes.word(j)));
        changes.set(row, i, token, logit);
    }
    sync_block();
}

/* True: none of the counted tokens is the row's own, which has no count but this one. */
DEVICE bool penalise(const drawn_row &row, const rn_draw_ask &ask, const drawn_changes &changes)
{
    shared<uint64_t> words(WORDS_AT, 3 * DRAW_WARPS);
    bool is_new;

    if (thread_of_block() == 0)
        words.put(0, changes.own != RN_DRAW_NONE);
    sync_block();
    for (uint32_t i = thread_of_block(); i < changes.n_counts; i += DRAW_THREADS) {
        uint32_t at = changes.n_biases + i, token = changes.token(at), count = changes.word(at);
        if (token == changes.own) {
            words.put(0, 0);
            count++;
        }
        changes.set(row, at, token, penalised(ask, row.raw(token), count));
    }
    sync_block();
    is_new = words.get(0) != 0;
    if (is_new && thread_of_block() == 0)
        changes.set(row, changes.n(), changes.own, penalised(ask, row.raw(changes.own), 1));
    sync_block();
    return is_new;
}

DEVICE bool change(const drawn_row &row, const rn_draw_ask &ask, const drawn_changes &changes)
{
    uint32_t first = changes.n_biases + changes.n_counts;
    bool is_new;

    add_biases(row, changes);
    is_new = penalise(row, ask, changes);
    for (uint32_t i = 0; i < changes.n_barred && !row.may_end && thread_of_block() == 0; i++)
        changes.set(row, first + i, changes.token(first + i), -INFINITY);
    sync_block();
    return is_new;
}

/* In the reverse order. */
DEVICE void change_back(const drawn_row &row, const drawn_changes &changes, bool is_new)
{
    uint32_t first = changes.n_biases + changes.n_counts;

    sync_block();
    for (uint32_t i = changes.n_barred; i-- > 0 && !row.may_end && thread_of_block() == 0;)
        changes.put_back(row, first + i, changes.token(first + i));
    sync_block();
    if (is_new && thread_of_block() == 0)
        changes.put_back(row, changes.n(), changes.own);
    for (uint32_t i = thread_of_block(); i < changes.n_counts; i += DRAW_THREADS)
        changes.put_back(row, changes.n_biases + i, changes.token(changes.n_biases + i));
    sync_block();
    for (uint32_t i = thread_of_block(); i < changes.n_biases; i += DRAW_THREADS)
        if (changes.is_first(i))
            changes.put_back(row, i, changes.token(i));
    sync_block();
}

/* ---- Logprobs ---- */

/* The logarithm of the sum of all weights at temperature 1: tokens of equal id modulo 8 in ascending order, then these
 * sums in ascending order. */
DEVICE double norm_of(const drawn_row &row)
{
    shared<double> weights(WEIGHTS_AT, LIST), sums(WORDS_AT, DRAW_WARPS);
    uint32_t thread = thread_of_block();
    double sum = 0, total = 0;

    for (uint32_t first = 0; first < row.n; first += LIST) {
        for (uint32_t i = thread; i < LIST; i += DRAW_THREADS) {
            double z = first + i < row.n ? (double)row.logit(first + i) - (double)row.best : -2 * LIGHT;
            weights.put(i, z < -LIGHT ? 0 : rn_exact_exp(z));
        }
        sync_block();
        for (uint32_t i = thread; thread < 8 && i < LIST; i += 8)
            sum += weights.get(i);
        sync_block();
    }
    if (thread < 8)
        sums.put(thread, sum);
    sync_block();
    for (uint32_t lane = 0; lane < 8; lane++)
        total += sums.get(lane);
    sync_block();
    return rn_exact_log(total);
}

DEVICE void put_logprobs(const drawn_row &row, const rn_draw_ask &ask, uint32_t token, const bytes_at &results,
                         uint64_t at)
{
    shared<uint64_t> list(LIST_AT, LIST);
    uint32_t n_top = ask.n_top < RN_DRAW_TOP ? ask.n_top : (uint32_t)RN_DRAW_TOP, n = 0;
    double norm = norm_of(row);

    if (n_top > 0)
        n = sort_best(row, find_end(row, false, UINT64_MAX, n_top), UINT64_MAX);
    for (uint32_t i = thread_of_block(); i < n; i += DRAW_THREADS) {
        uint64_t key = list.get(i);
        results.put<int32_t>(at + offsetof(rn_draw_result, top_tokens) + i * 4, (int32_t)id_of(key));
        results.put<float>(at + offsetof(rn_draw_result, top_logprobs) + i * 4,
                           (float)((double)logit_of(key) - (double)row.best - norm));
    }
    if (thread_of_block() == 0) {
        results.put<float>(at + offsetof(rn_draw_result, logprob),
                           (float)((double)(row.logit(token) + 0.0f) - (double)row.best - norm)); /* no -0 */
        results.put<uint32_t>(at + offsetof(rn_draw_result, n_top), n);
    }
}

} // namespace

RN_KERNEL(draw, rn_draw_args, DRAW_THREADS, 1)
{
    uint64_t at = (uint64_t)block_x() * sizeof(rn_draw_result), best = 0, allowed = 0, bad = 0;
    rn_draw_ask ask = bytes_at(args.asks).get<rn_draw_ask>((uint64_t)block_x() * sizeof(rn_draw_ask));
    drawn_row row = {global<float>(args.logits, (uint64_t)args.n_rows * args.n_vocab),
                     (uint64_t)block_x() * args.n_vocab,
                     args.n_vocab,
                     shared<uint32_t>(MASK_AT, words_of_mask(args.n_vocab)),
                     false,
                     false,
                     0,
                     1,
                     1,
                     1};
    shared<uint64_t> words(WORDS_AT, 3 * DRAW_WARPS);
    bytes_at results(args.results);
    uint32_t token = 0;
    bool wanted = ask.wanted != 0, is_late, good, changed, is_new = false;
    drawn_changes changes = {global<rn_draw_change>(args.changes, args.n_changes),
                             global<float>(args.saved, (uint64_t)args.n_changes + args.n_rows),
                             ask.changes_at,
                             (uint64_t)ask.changes_at + block_x(),
                             ask.n_biases,
                             ask.n_counts,
                             ask.n_barred,
                             RN_DRAW_NONE};

    row.is_masked = wanted && ask.mask != 0;
    is_late = row.is_masked && !take_mask(row, ask.mask);
    if (is_late)
        give_logits(row, ask.late);
    for (uint32_t i = thread_of_block(); wanted && !is_late && i < row.n; i += DRAW_THREADS) {
        float raw = row.raw(i);
        uint32_t bits = bits_of(raw);
        uint64_t key = key_of(raw, i);
        if (bits == 0x7f800000u || (bits & 0x7fffffffu) > 0x7f800000u)
            bad = 1;
        best = key > best ? key : best;
    }
    bad = sum_of_keys(bad, words);
    best = most_of_keys(best, words);
    good = wanted && !is_late && bad == 0;
    if (good && ask.own != RN_DRAW_NONE)
        changes.own = global<uint32_t>(args.tokens, args.n_tokens).get(ask.own);
    changed = good && changes.are_there();
    if (changed)
        is_new = change(row, ask, changes);
    for (uint32_t i = thread_of_block(); good && (changed || row.is_masked) && i < row.n; i += DRAW_THREADS) {
        uint64_t key = key_of(row.logit(i), i);
        allowed = key > allowed ? key : allowed;
    }
    allowed = changed || row.is_masked ? most_of_keys(allowed, words) : best;
    row.best = logit_of(allowed);
    good = good && row.best != -INFINITY;
    if (good) {
        token = id_of(allowed);
        row.inverse = ask.temperature > 0 ? 1 / (double)ask.temperature : 1;
        row.quick_inverse = (float)fmin(row.inverse, 0x1.fffffep127);
        row.digit_scale = (float)fmin(row.inverse * ((HISTOGRAM - 1) / DEPTH), 0x1.fffffep127);
        if (ask.temperature > 0)
            token = toss(row, ask, token, cut_of(row, ask),
                         ask.min_p > 0 ? rn_exact_log((double)ask.min_p) : -(double)INFINITY);
    }
    if (changed)
        change_back(row, changes, is_new);
    if (good && ask.want_logprob != 0) {
        row.is_masked = false;
        row.best = logit_of(best);
        put_logprobs(row, ask, token, results, at);
    }
    if (thread_of_block() == 0) {
        results.put<uint32_t>(at + offsetof(rn_draw_result, good), good ? 1 : 0);
        results.put<int32_t>(at + offsetof(rn_draw_result, token), (int32_t)token);
        results.put<uint32_t>(at + offsetof(rn_draw_result, is_late), is_late ? 1 : 0);
    }
}

RN_KERNEL(feed, rn_feed_args, 256, 4)
{
    uint32_t r = block_x() * 256 + thread_of_block();
    int32_t drawn;

    if (r >= args.n_rows)
        return;
    drawn = global<int32_t>(args.drawn, args.n_rows).get(r);
    if (drawn < 0 || (uint32_t)drawn >= args.n_results)
        return;
    global<uint32_t>(args.tokens, args.n_rows)
        .put(r, (uint32_t)bytes_at(args.results)
                    .get<int32_t>((uint64_t)drawn * sizeof(rn_draw_result) + offsetof(rn_draw_result, token)));
}
