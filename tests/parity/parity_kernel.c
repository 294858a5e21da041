/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/parity/parity.h"
const struct parity_case parity_kernel[] = { { 0 } };
