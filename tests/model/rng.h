/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Random numbers that a seed determines (splitmix64). */

#include <stdint.h>

struct rng {
	uint64_t state;
};

static inline uint64_t rng_next(struct rng *rng)
{
	uint64_t z = rng->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static inline void rng_init(struct rng *rng, uint64_t seed)
{
	rng->state = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
	(void)rng_next(rng); /* neighbouring seeds part */
}

/* [0, n); n > 0. */
static inline uint64_t rng_below(struct rng *rng, uint64_t n)
{
	return rng_next(rng) % n;
}

static inline int rng_chance(struct rng *rng, unsigned of_1000)
{
	return rng_below(rng, 1000) < of_1000;
}
