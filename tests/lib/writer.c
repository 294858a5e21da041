/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer DIR --id K --record FILE (--seconds T | --until-file F) [--mode MODE] ...
 * writer --check DIR --id K --record FILE [--mode MODE] ...
 *
 * A workload that knows what it did. Writer K works in DIR/wK, which it alone uses,
 * and with --shared SUB on the names that are its own in DIR/SUB: so it can tell at any
 * time what must be there. What was acknowledged goes into FILE, outside of DIR;
 * --check compares a directory with it, byte for byte. A writer that finds its FILE
 * goes on where that ends.
 *
 * Modes: mix (all kinds of operations), churn (names above all), random8k (8 KiB writes
 * at random places, 2,000 a second, each timed), append (a log of numbered lines).
 *
 * Exit: 0, 1 something was wrong, 2 usage or trouble of its own, 3 the mount went
 * away (with --may-lose-mount).
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/writer.h"

static volatile sig_atomic_t is_told_to_end;

enum { LOOK_EVERY_NS = 20 * 1000 * 1000 };

static void on_signal(int signal)
{
	(void)signal;
	is_told_to_end = 1;
}

void pace_start(struct pace *pace, const struct writer_options *options)
{
	*pace = (struct pace){ .options = options, .start_ns = now_ns() };
	pace->next_ns = pace->start_ns;
}

static bool is_over(struct pace *pace, uint64_t now)
{
	const struct writer_options *options = pace->options;

	if (is_told_to_end)
		return true;
	if (options->seconds > 0 && (double)(now - pace->start_ns) > options->seconds * 1e9)
		return true;
	if (!options->until_file || now - pace->looked_ns < LOOK_EVERY_NS)
		return false;
	pace->looked_ns = now;
	return access(options->until_file, F_OK) == 0;
}

bool pace_next(struct pace *pace)
{
	uint64_t now = now_ns();
	struct timespec until;

	if (is_over(pace, now))
		return false;
	if (pace->options->rate <= 0)
		return true;
	if (pace->next_ns > now) {
		until = (struct timespec){ (time_t)(pace->next_ns / 1000000000u),
					   (long)(pace->next_ns % 1000000000u) };
		(void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
	}
	pace->next_ns += (uint64_t)(1e9 / pace->options->rate);
	if (pace->next_ns + 1000000000u < now) /* what a long stall cost is not made up for */
		pace->next_ns = now;
	return true;
}

static bool is_loss_of_mount(int error)
{
	return error == ENOTCONN || error == ECONNABORTED || error == ESHUTDOWN || error == EIO;
}

void writer_fail_errno(const struct writer_options *options, int error, const char *format, ...)
{
	bool is_loss = options->may_lose_mount && is_loss_of_mount(error);
	va_list args;

	fflush(stdout);
	fprintf(stderr, "writer %u: ", options->id);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	if (error)
		fprintf(stderr, ": %s", strerror(error));
	fputc('\n', stderr);
	/* Not exit(): descriptors of a mount that hangs are the kernel's to close. */
	_exit(is_loss ? WRITER_LOST_MOUNT : WRITER_FAILED);
}

enum mode { MODE_MIX, MODE_CHURN, MODE_RANDOM8K, MODE_APPEND, MODE_MAX };

static const struct {
	const char *name;
	double rate;
} modes[MODE_MAX] = {
	[MODE_MIX] = { "mix", 400 },
	[MODE_CHURN] = { "churn", 800 },
	[MODE_RANDOM8K] = { "random8k", 2000 },
	[MODE_APPEND] = { "append", 1000 },
};

static enum mode parse_mode(const char *text)
{
	enum mode mode;

	for (mode = 0; mode < MODE_MAX; mode++)
		if (strcmp(text, modes[mode].name) == 0)
			return mode;
	die(TEST_TROUBLE, "no mode '%s'", text);
}

static void run_mode(const struct writer_options *options, enum mode mode)
{
	switch (mode) {
	case MODE_RANDOM8K:
		random8k_run(options);
		break;
	case MODE_APPEND:
		append_run(options);
		break;
	default:
		ops_run(options, mode == MODE_CHURN);
	}
}

static uint64_t check_mode(const struct writer_options *options, enum mode mode)
{
	switch (mode) {
	case MODE_RANDOM8K:
		return random8k_check(options);
	case MODE_APPEND:
		return append_check(options);
	default:
		return ops_check(options);
	}
}

struct command {
	struct writer_options options;
	enum mode mode;
	bool is_check;
};

static const struct option long_options[] = {
	{ "id", required_argument, NULL, 'i' },
	{ "record", required_argument, NULL, 'r' },
	{ "seconds", required_argument, NULL, 's' },
	{ "until-file", required_argument, NULL, 'u' },
	{ "mode", required_argument, NULL, 'm' },
	{ "shared", required_argument, NULL, 'S' },
	{ "writers", required_argument, NULL, 'w' },
	{ "seed", required_argument, NULL, 'e' },
	{ "rate", required_argument, NULL, 'R' },
	{ "size", required_argument, NULL, 'z' },
	{ "may-lose-mount", no_argument, NULL, 'l' },
	{ "no-xattr", no_argument, NULL, 'x' },
	{ "no-symlink-times", no_argument, NULL, 't' },
	{ "direct", no_argument, NULL, 'd' },
	{ "check", no_argument, NULL, 'c' },
	{ 0 },
};

static void parse_option(struct command *command, int option)
{
	struct writer_options *o = &command->options;

	switch (option) {
	case 'i':
		o->id = (unsigned)parse_number("--id", optarg);
		break;
	case 'r':
		o->record = optarg;
		break;
	case 's':
		o->seconds = (double)parse_number("--seconds", optarg);
		break;
	case 'u':
		o->until_file = optarg;
		break;
	case 'm':
		command->mode = parse_mode(optarg);
		break;
	case 'S':
		o->shared = optarg;
		break;
	case 'w':
		o->writers = (unsigned)parse_number("--writers", optarg);
		break;
	case 'e':
		o->seed = parse_number("--seed", optarg);
		break;
	case 'R':
		o->rate = (double)parse_number("--rate", optarg);
		break;
	case 'z':
		o->size = parse_number("--size", optarg);
		break;
	case 'l':
		o->may_lose_mount = true;
		break;
	case 'x':
		o->no_xattr = true;
		break;
	case 't':
		o->no_symlink_times = true;
		break;
	case 'd':
		o->is_direct = true;
		break;
	case 'c':
		command->is_check = true;
		break;
	default:
		exit(TEST_TROUBLE);
	}
}

static void parse(int argc, char **argv, struct command *command)
{
	struct writer_options *o = &command->options;
	int option;

	*command = (struct command){
		.options = { .writers = 1, .rate = -1, .seed = 1, .size = 64 * 1024 * 1024 }
	};
	while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1)
		parse_option(command, option);
	if (argc - optind != 1 || !o->record || o->writers == 0)
		die(TEST_TROUBLE, "usage: writer [--check] DIR --id K --record FILE "
				  "[--seconds T] [--until-file F] [--mode MODE]");
	o->dir = argv[optind];
	if (o->rate < 0)
		o->rate = modes[command->mode].rate;
	if (!command->is_check && o->seconds <= 0 && !o->until_file)
		die(TEST_TROUBLE, "--seconds or --until-file, or it would never end");
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct command command;
	uint64_t differences;

	parse(argc, argv, &command);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	if (command.is_check) {
		differences = check_mode(&command.options, command.mode);
		if (differences > 0)
			fprintf(stderr, "writer %u: %llu differences from what was acknowledged\n",
				command.options.id, (unsigned long long)differences);
		return differences > 0 ? WRITER_FAILED : 0;
	}
	run_mode(&command.options, command.mode);
	return 0;
}
