/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What a daemon does for ferry: the commands of the control socket. */

#include "tools/control.h"

/* Ended by one without a name; their context is a struct service. */
extern const struct control_command requests_commands[];
