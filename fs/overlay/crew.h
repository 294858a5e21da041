/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Which of the serving threads reads the next request.
 *
 * Were all of them to wait in read(2), each request would wake another one, on another
 * processor, with cold caches: most of the cost of a short request. So the one that has read
 * a request serves it and reads again, and the others rest, as long as that is enough. A
 * thread that rests is woken when
 *  - more requests are there than are being read, or one is read that may take long;
 *  - nobody has read for a moment, whatever the reason: the one that served was held up (by a
 *    disk, or by the gate). Then more threads wait in read(2) for a while.
 *
 * Locking: none but atomics; all functions are thread-safe. No wake-up is lost: who goes to
 * rest counts itself and then looks for a reader; who stops reading leaves the count of
 * readers and then looks for one that rests.
 */

#include <stdbool.h>

#include "util/attr.h"

struct crew; /* opaque */

struct crew *crew_new(unsigned threads); /* NULL: no memory */
struct crew *crew_free(struct crew *crew);

/* Before and after a thread waits for a request. crew_read_end() returns true when nobody
 * reads now and somebody rests: if there is more to do, or the request may take long, the
 * caller calls crew_wake(). */
void crew_read_begin(struct crew *crew);
bool crew_read_end(struct crew *crew);
void crew_wake(struct crew *crew);

/* After a request was served: rests if enough others read. */
void crew_rest(struct crew *crew);

/* Watches for threads that are held up, until crew_stop(); a thread of its own calls it. */
void crew_watch(struct crew *crew);

/* Nobody rests any more, then or later. */
void crew_stop(struct crew *crew);
