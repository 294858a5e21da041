/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The gate that a cutover holds requests with.
 *
 * Passing it and being counted is one atomic step: when a closer has seen the count
 * at zero, no request of that kind is between the gate and its answer (but for direct writes
 * whose work is done, and which the notifier answers). Changes that
 * find it closed are parked as raw messages, in the order of their coming, and hold
 * no thread; when it opens they are handed out by gate_next(). Reads are held back
 * (in their thread) only while gate_close_reads() is in force, for an instant.
 *
 * Locking: one mutex, a leaf; nothing is called under it. The way through an open
 * gate takes none. All functions are thread-safe; freeze, close_reads and open are
 * for one caller at a time.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/attr.h"

enum gate_kind { GATE_CHANGE, GATE_READ };

/* Outcomes the direct caller must handle. */
enum {
	GATE_E_CLOSED = 1,  /* gate_enter(): park it and forget it */
	GATE_E_OPEN,	    /* gate_park(): it has opened meanwhile, enter again */
	GATE_E_INTERRUPTED, /* gate_park(): its interrupt came before it */
};

/* A parked message: as read from the kernel, or with @unique 0 one of our own. */
struct parked {
	struct parked *next;
	uint64_t unique;
	uint64_t since_ms; /* clock_ms() */
	size_t size;
	char message[] __attribute__((aligned(8)));
};

struct gate; /* opaque */

struct gate *gate_new(uint64_t parked_bytes_max); /* NULL: no memory */
struct gate *gate_free(struct gate *gate);	  /* what is still parked is freed */

/* Passes, counted until gate_leave(): 0, or for a change GATE_E_CLOSED. */
int gate_enter(struct gate *gate, enum gate_kind kind) MUST_CHECK;
void gate_leave(struct gate *gate, enum gate_kind kind);

/* Parks @parked (taken on 0, which may be past the bound: gate_is_overfull()). */
int gate_park(struct gate *gate, struct parked *parked) MUST_CHECK;

/* Takes the request @unique out of the queue: the caller owns what is returned, and
 * answers it. NULL: it is not there; should it still be on its way into the queue,
 * gate_park() will say so. */
struct parked *gate_interrupt(struct gate *gate, uint64_t unique);

/* Waits until the gate is open and something is parked, and passes the gate with it
 * as a change (gate_leave()). Owned by the caller. NULL after gate_stop(). */
struct parked *gate_next(struct gate *gate);
void gate_stop(struct gate *gate);

/* Lets all that is parked through, closes the gate for changes, waits until none is
 * inside. Open again on -ETIMEDOUT (clock_ms() reached @deadline_ms) and -ENOBUFS. */
int gate_freeze(struct gate *gate, uint64_t deadline_ms) MUST_CHECK;
/* Of a frozen gate: holds reads too; returns when none is inside. */
int gate_close_reads(struct gate *gate, uint64_t deadline_ms) MUST_CHECK;
void gate_open(struct gate *gate);

bool gate_is_open(const struct gate *gate);
bool gate_is_overfull(const struct gate *gate);
uint64_t gate_parked(const struct gate *gate);
/* The longest that one was parked by the last freeze, as far as released. */
uint64_t gate_last_parked_ms(const struct gate *gate);
