#!/usr/bin/env python3
"""Hit rates of ways to evict: a model of whole prefixes of one size under Zipf's law, in which some prompts come only once.

    bench/prefix_hits.py [PROMPTS]

Rows: Zipf's exponent, the share of prompts that come once. Columns: hits of the others, where a prefix counts 0 (least
recently used), 1, 3 or 7 hits at most in its rank (cache/prefix_tree.h); then the same where the popular ones shift by a
tenth each 3,000 prompts."""
import bisect
import heapq
import itertools
import random
import sys

PREFIXES, ROOM, SHIFT = 2000, 200, 3000


class Pool:
    """Prefixes by rank and last use; the first of these goes where there is no room for one more."""

    def __init__(self, most_hits):
        self.most_hits, self.tide, self.now = most_hits, 0, 0
        self.known = {}  # prefix: [rank, last use, hits]
        self.heap = []   # of (rank, last use, prefix); what has been used since is there again

    def evict(self):
        while True:
            rank, used, prefix = heapq.heappop(self.heap)
            if prefix in self.known and self.known[prefix][:2] == [rank, used]:
                self.tide = max(self.tide, rank)
                del self.known[prefix]
                return

    def ask(self, prefix):
        """True: it was there."""
        self.now += 1
        hit = prefix in self.known
        if not hit and len(self.known) >= ROOM:
            self.evict()
        rank, _, hits = self.known.get(prefix, (0, 0, 0))
        hits = min(hits + hit, self.most_hits)
        rank = max(rank, self.tide + 4 + 4 * hits)
        self.known[prefix] = [rank, self.now, hits]
        heapq.heappush(self.heap, (rank, self.now, prefix))
        return hit


def rate(most_hits, exponent, once, prompts, shifts):
    drawn = random.Random(1)
    weights = list(itertools.accumulate((i + 1) ** -exponent for i in range(PREFIXES)))
    pool, n_hits, n_asked, first = Pool(most_hits), 0, 0, 0
    for i in range(prompts):
        if shifts and i % SHIFT == 0:
            first += PREFIXES // 10
        if drawn.random() < once:
            pool.ask(-1 - i)
            continue
        n_asked += 1
        n_hits += pool.ask((bisect.bisect(weights, drawn.random() * weights[-1]) + first) % PREFIXES)
    return n_hits / n_asked


def main():
    prompts = int(sys.argv[1]) if len(sys.argv) > 1 else 60000
    for exponent, once in itertools.product((0.6, 0.8, 1.0, 1.2), (0, 0.3, 0.6)):
        rates = (f"{rate(most, exponent, once, prompts, shifts):.3f}" for shifts in (False, True) for most in (0, 1, 3, 7))
        print(exponent, once, *rates, flush=True)


if __name__ == "__main__":
    main()
