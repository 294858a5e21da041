/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Compiler attributes, and the refusal of builds without assertions. */

#ifdef NDEBUG
#error "ferryfs keeps its assertions in every build: stopping is safe, going on broken is not"
#endif

#include <assert.h>

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))
#define UNUSED __attribute__((unused))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
