/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/rates.h"

#include <math.h>

#include "util/attr.h"

/* What a minute's history cannot know, either way. */
#define ETA_DOUBT 1.25

void rates_add(struct rates *rates, const struct rates_sample *sample)
{
	rates->samples[rates->next] = *sample;
	rates->next = (rates->next + 1) % RATES_SAMPLES_MAX;
	if (rates->count < RATES_SAMPLES_MAX)
		rates->count++;
}

/* The sample @age places before the latest. */
static const struct rates_sample *sample_back(const struct rates *rates, unsigned age)
{
	assert(age < rates->count);
	return &rates->samples[(rates->next + 2 * RATES_SAMPLES_MAX - 1 - age) % RATES_SAMPLES_MAX];
}

struct rates_speed rates_get(const struct rates *rates, unsigned window_s)
{
	const struct rates_sample *last, *first;
	double seconds, dirtied;

	if (rates->count < 2)
		return (struct rates_speed){ 0 };
	last = first = sample_back(rates, 0);
	for (unsigned age = 1; age < rates->count; age++) {
		first = sample_back(rates, age);
		if (last->at_ms - first->at_ms >= window_s * 1000u)
			break;
	}
	seconds = (double)(last->at_ms - first->at_ms) / 1000;
	if (seconds <= 0)
		return (struct rates_speed){ 0 };
	dirtied = (double)(last->dirtied_bytes - first->dirtied_bytes) -
		  (double)(last->found_bytes - first->found_bytes);
	return (struct rates_speed){
		/* Something may be found in one sample and be dirty in the next. */
		.dirty_bytes_s = dirtied > 0 ? dirtied / seconds : 0,
		.drain_bytes_s = (double)(last->drained_bytes - first->drained_bytes) / seconds,
		.objects_s = (double)(last->done_objects - first->done_objects) / seconds,
	};
}

static double time_for(uint64_t amount, double speed)
{
	if (amount == 0)
		return 0;
	return speed > 0 ? (double)amount / speed : INFINITY;
}

/* Bytes and objects are two queues in front of the same workers: the longer one tells. */
static double longer(const struct rates_backlog *backlog, double bytes_s, double objects_s)
{
	double bytes = time_for(backlog->bytes, bytes_s),
	       objects = time_for(backlog->objects, objects_s);

	return bytes > objects ? bytes : objects;
}

static double eta(const struct rates_speed *speed, const struct rates_backlog *backlog)
{
	return longer(backlog, speed->drain_bytes_s - speed->dirty_bytes_s, speed->objects_s);
}

double rates_wait_s(const struct rates *rates, const struct rates_backlog *backlog)
{
	struct rates_speed speed = rates_get(rates, RATES_WINDOW_S);

	return longer(backlog, speed.drain_bytes_s, speed.objects_s);
}

bool rates_eta(const struct rates *rates, const struct rates_backlog *backlog, double *ret_low_s,
	       double *ret_high_s)
{
	struct rates_speed speed = rates_get(rates, RATES_WINDOW_S);
	struct rates_speed speed_long = rates_get(rates, RATES_WINDOW_LONG_S);
	double a = eta(&speed, backlog), b = eta(&speed_long, backlog);

	if (!isfinite(a))
		return false; /* whatever it was like a minute ago */
	if (!isfinite(b))
		b = a;
	*ret_low_s = (a < b ? a : b) / ETA_DOUBT;
	*ret_high_s = (a > b ? a : b) * ETA_DOUBT;
	return true;
}
